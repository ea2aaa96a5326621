"""The token."""

from asking import TOKEN


def test_the_token_is_needed_for_answers_and_counters_and_not_for_the_page(served):
    right = {"authorization": f"Bearer {TOKEN}"}
    with served(token=TOKEN) as client:
        for path in ("/", "/page/style.css", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200
        for path in ("/api/models", "/api/examples", "/api/openapi.json", "/metrics"):
            assert client.get(path).status_code == 401
            assert client.get(f"{path}?token={TOKEN}").status_code == 401
            assert client.get(path, headers=right).status_code == 200


def test_the_token_comes_after_the_word_bearer_in_any_case(served):
    given = {
        f"bearer {TOKEN}": 200,
        f"BEARER  {TOKEN}": 200,
        f"Bearer {TOKEN[:-1]}": 401,
        f"Basic {TOKEN}": 401,
        TOKEN: 401,
    }
    with served(token=TOKEN) as client:
        for said, status in given.items():
            found = client.get("/api/models", headers={"authorization": said})
            assert found.status_code == status, said
            assert (found.headers.get("www-authenticate") == "Bearer") == (status == 401)


def test_without_a_token_nothing_asks_for_one(client):
    for path in ("/api/models", "/metrics"):
        assert client.get(path).status_code == 200
