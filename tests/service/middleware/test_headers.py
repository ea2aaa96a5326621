"""Headers of responses."""


def test_every_answer_has_the_headers(client):
    for path in ("/", "/api/models", "/nowhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_head_is_answered_as_get_without_a_body(client):
    for path in ("/", "/healthz", "/page/style.css", "/api/models"):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
    assert client.head("/api/propose").status_code == 405
