"""Requests per client."""

from mue.service.middleware.rate import TokenBuckets


def test_too_many_requests_are_refused(served):
    with served(rate=0.001, burst=2) as client:
        codes = [client.get("/api/models").status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        assert client.get("/api/models").headers["retry-after"] == "1"
        for path in ("/", "/page/style.css", "/metrics", "/nowhere"):
            assert client.get(path).status_code == 429
        for path in ("/healthz", "/readyz"):
            assert client.get(path).status_code == 200


def test_a_bucket_fills_at_its_rate_and_never_beyond_the_burst():
    buckets = TokenBuckets(rate=2.0, burst=3)
    assert [buckets.allow_("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert not buckets.allow_("a", 0.25)
    assert buckets.allow_("a", 0.5)  # half a second is one token
    assert not buckets.allow_("a", 0.5)
    assert [buckets.allow_("a", 1000.0) for _ in range(4)] == [True, True, True, False]
    assert buckets.allow_("b", 1000.0)


def test_the_client_that_was_silent_longest_is_forgotten_first():
    buckets = TokenBuckets(rate=0.001, burst=1, clients=2)
    assert buckets.allow_("a", 0.0)
    assert buckets.allow_("b", 0.0)
    assert not buckets.allow_("a", 0.0)  # both are counted; `b` is silent since longest
    assert buckets.allow_("c", 0.0)
    assert not buckets.allow_("a", 0.0)
    assert not buckets.allow_("c", 0.0)
    assert buckets.allow_("b", 0.0)  # as a new client


def test_without_a_rate_every_request_is_allowed():
    assert all(TokenBuckets(rate=0.0, burst=1).allow_("a", 0.0) for _ in range(10))
