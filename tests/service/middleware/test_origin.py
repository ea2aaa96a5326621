"""Names and pages of other sites."""


def test_a_name_that_is_not_ours_is_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/", headers={"host": "192.168.0.7:8000"}).status_code == 200


def test_a_page_of_another_site_is_refused(client):
    for origin in ("http://evil.example", "null", "http://["):
        assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.get("/", headers={"origin": str(client.base_url).rstrip("/")}).status_code == 200


def test_a_link_of_another_site_opens_the_page_and_nothing_else(client):
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    for method in ("GET", "HEAD"):
        assert client.request(method, "/", headers=link).status_code == 200
    assert client.post("/", headers=link).status_code == 403
    for path in ("/api/models", "/page/viewer.js", "/metrics"):
        assert client.get(path, headers=link).status_code == 403
    for other in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}):
        assert client.get("/", headers={**link, **other}).status_code == 403
    assert client.get("/", headers={**link, "origin": "http://evil.example"}).status_code == 403
