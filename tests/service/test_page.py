"""The page in a real browser: Debian's Chromium, driven by Playwright. `make test-browser`."""

import base64
import gzip
import importlib
import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom import dcmread

import mue

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.filterwarnings("default"),
]
WIDTHS = {1440: 900, 1024: 768, 390: 844}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(served) -> Iterator[str]:
    with served(rate=0.0) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found = context.new_page()
    found.set_default_timeout(60_000)
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda m: wrong.append(m.text) if "Content Security" in m.text else None)
    go(found, address)
    yield found
    context.close()
    assert not wrong


def go(page, address: str, view: str = "") -> None:
    page.goto("about:blank")
    page.goto(f"{address}/{'#' if view else ''}{view}")
    page.wait_for_selector("body[data-ready]")


def total(page) -> float:
    """The probabilities on the page, of modes and rest, in percent."""
    return sum(map(percent, page.locator("#modes .prob, #rest-prob").all_inner_texts()))


def percent(text: str) -> float:
    return float(text.replace("%", "").replace("<", ""))


def shows(page, text: str) -> None:
    sync_api.expect(page.locator("#status")).to_contain_text(text, timeout=60_000)


def settle(page) -> None:
    page.wait_for_selector("body:not(.busy)")


def asked(address: str, content: bytes, name: str = "a.png", **form: Any) -> dict:
    """What the service answers."""
    form = {"model": "lidc-exact", **form}
    files = {"file": (name, content)}
    return httpx.post(f"{address}/api/propose", files=files, data=form, timeout=60).json()


def image_of(address: str, example: str) -> bytes:
    """The file of an example."""
    found = httpx.get(f"{address}/api/examples").json()
    return base64.b64decode(next(e["image"] for e in found if e["id"] == example))


def test_modes_and_rest_are_those_of_the_service(page, address):
    page.locator("[data-example=phantom-4]").click()
    settle(page)
    shows(page, "Ground glass")
    content = image_of(address, "phantom-4")
    wanted: dict[str, dict[str, Any]] = {"": {"k": 12}, "0.5": {"coverage": 0.5}}
    rests = list[float]()
    for coverage, form in wanted.items():
        page.locator("#coverage").select_option(coverage)
        found = asked(address, content, masks="none", **form)
        probs = [100 * m["prob"] for m in found["modes"]]
        shown = page.locator("#modes .prob").all_inner_texts()
        assert [percent(text) for text in shown] == pytest.approx(probs, abs=0.06)
        rest = percent(page.locator("#rest-prob").inner_text())
        assert rest == pytest.approx(100 * found["rest"], abs=0.06)
        rests.append(rest)
    assert rests[1] > rests[0]


def test_a_finer_cut_has_more_modes_as_the_service_says(page, address):
    content = image_of(address, "phantom-1")
    for cut in ("0.20", "0.90"):
        page.locator("#cut").fill(cut)
        shown = page.locator("#modes .prob").all_inner_texts()
        found = asked(address, content, cut=cut, k=12, masks="none")
        wanted = [100 * m["prob"] for m in found["modes"]]
        assert [percent(t) for t in shown] == pytest.approx(wanted, abs=0.06)
    assert total(page) == pytest.approx(100, abs=1)


def test_coverage_shows_fewer_modes_and_more_rest(page):
    before = page.locator("#modes .mode").count()
    page.locator("#coverage").select_option("0.5")
    assert page.locator("#modes .mode").count() < before
    assert total(page) == pytest.approx(100, abs=1)


def test_keys_switch_answers_and_layers(page):
    page.keyboard.press("2")
    assert page.locator("[data-mode='1']").get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowRight")
    assert page.locator("[data-mode='2']").get_attribute("aria-pressed") == "true"
    page.keyboard.press("m")
    assert page.locator("[data-layer=mean]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


def test_what_is_pressed_by_the_keyboard_keeps_the_focus(page, address):
    focused = "document.activeElement.getAttribute('aria-label')"
    for selector in ("[data-mode='1']", ".open >> nth=0", ".member >> nth=1"):
        page.locator(selector).focus()
        name = page.evaluate(focused)
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == name
    assert "answer 1" in page.locator("canvas[role=img]").get_attribute("aria-label")
    go(page, address, "model=guess-exact")
    page.locator("[aria-label='Place 1: next digit']").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    shows(page, "Digits 3 2 3 4")
    assert page.evaluate(focused) == "Place 1: next digit"


def test_the_page_is_reached_by_the_tabulator_alone(page):
    seen = set[str]()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = {"model", "file", "example", "raters", "zoom-in", "opacity", "cut", "coverage", "mode"}
    assert wanted | {"open", "compare", "theme", "link", "digit"} <= seen


def test_members_open_and_codes_stand_alone(page):
    page.locator(".open").first.click()
    assert page.locator(".member").count() >= 2
    page.locator("[data-by=code]").click()
    assert "code" in page.locator("#modes .about").first.inner_text()
    assert page.locator(".open").count() == 0


def formats(tmp_path: Path, series: list[tuple[str, bytes]]) -> list[Path]:
    """A file of each kind; the last one is a volume."""
    grey = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "a.png")
    Image.fromarray(grey).save(tmp_path / "a.jpg")
    tifffile.imwrite(tmp_path / "a.tif", grey.astype(np.uint16) * 200)
    volume = nib.Nifti1Image(np.repeat(grey[:, :, None], 5, 2).astype(np.int16), np.eye(4))
    (tmp_path / "a.dcm").write_bytes(series[0][1])
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(volume.to_bytes()))
    return [tmp_path / f"a.{ending}" for ending in ("png", "jpg", "tif", "dcm", "nii.gz")]


def drop(page, files: list[tuple[str, bytes]]) -> None:
    """Let files fall on the page, as a mouse does."""
    script = """files => {
        const transfer = new DataTransfer();
        for (const [name, text] of files) {
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            transfer.items.add(new File([bytes], name));
        }
        for (const type of ["dragover", "drop"]) {
            const event = new DragEvent(type, { dataTransfer: transfer, bubbles: true });
            document.body.dispatchEvent(event);
        }
    }"""
    page.evaluate(script, [[name, base64.b64encode(data).decode()] for name, data in files])


def test_every_format_can_be_dropped_and_a_volume_has_a_slider(page, tmp_path, series):
    for path in formats(tmp_path, series):
        drop(page, [(path.name, path.read_bytes())])
        shows(page, path.name)
        assert total(page) == pytest.approx(100, abs=1)
    assert page.locator("#slice-value").inner_text() == "3 / 5"
    page.keyboard.press("]")
    settle(page)
    assert page.locator("#slice-value").inner_text() == "4 / 5"


def volume_of_noise(tmp_path: Path, slices: int = 5) -> Path:
    values = np.random.default_rng(0).integers(-1000, 400, (32, 32, slices)).astype(np.int16)
    path = tmp_path / "a.nii"
    path.write_bytes(nib.Nifti1Image(values, np.eye(4)).to_bytes())
    return path


def test_keys_go_on_to_the_next_slice_before_the_last_one_is_answered(page, tmp_path):
    upload(page, volume_of_noise(tmp_path, 9))
    held = []
    page.route("**/api/propose", lambda route: held.append(route))
    shown = page.locator("#slice-value")
    for number in ("6 / 9", "7 / 9", "8 / 9", "9 / 9", "9 / 9"):
        page.keyboard.press("]")
        page.wait_for_timeout(200)  # it is asked for, and not answered
        page.keyboard.press("m")  # the page is painted again
        assert shown.inner_text() == number
    assert "slice=9" in page.evaluate("location.hash")
    page.unroute("**/api/propose")
    for route in held:
        try:
            route.continue_()
        except sync_api.Error:  # it was called off
            continue
    settle(page)
    assert shown.inner_text() == "9 / 9"
    page.keyboard.press("[")
    page.keyboard.press("]")
    page.keyboard.press("]")  # there is none after the last
    page.wait_for_timeout(200)
    settle(page)
    sync_api.expect(shown).to_have_text("9 / 9")
    page.keyboard.press("[")
    page.wait_for_timeout(200)
    settle(page)
    sync_api.expect(shown).to_have_text("8 / 9")


def test_the_last_slice_is_answered_however_often_the_key_is_pressed(page, address, tmp_path):
    path = volume_of_noise(tmp_path)
    upload(page, path)
    for _ in range(6):
        page.keyboard.press("]")
    page.wait_for_timeout(200)
    settle(page)
    found = asked(address, path.read_bytes(), "a.nii", slice=4, k=1, masks="none")
    first = percent(page.locator("#modes .prob").first.inner_text())
    assert first == pytest.approx(100 * found["modes"][0]["prob"], abs=0.06)


def test_the_files_of_a_series_become_a_volume(page, tmp_path, series):
    drop(page, series)
    shows(page, "Series of 6 files")
    assert page.locator("#slice-value").inner_text() == "4 / 6"
    page.locator("#slice").fill("1")
    sync_api.expect(page.locator("#status")).to_contain_text("answered")
    page.wait_for_timeout(200)
    settle(page)
    assert page.locator("#slice-value").inner_text() == "2 / 6"
    page.locator("#preset").select_option("lung")
    assert page.locator("#window-value").inner_text() == "1500"
    assert page.locator("#level-value").inner_text() == "−600"
    with page.expect_download() as found:
        page.locator("[data-download=dicom-seg]").click()
    found.value.save_as(tmp_path / "seg.dcm")
    (source,) = dcmread(tmp_path / "seg.dcm").ReferencedSeriesSequence[0].ReferencedInstanceSequence
    slices = {name: dcmread(io.BytesIO(data)).SOPInstanceUID for name, data in series}
    assert source.ReferencedSOPInstanceUID == slices["1.dcm"]


def test_what_is_no_slice_is_left_out_of_a_series_and_a_zip_is_to_be_unpacked(page, series):
    drop(page, [*series, ("notes.txt", b"hello")])
    shows(page, "Series of 6 files 1 that is not DICOM left out")
    drop(page, [("series.zip", b"PK")])
    sync_api.expect(page.locator("#toast")).to_contain_text("unpack it, and drop the folder")
    drop(page, [("a.png", b"1"), ("b.png", b"2")])
    sync_api.expect(page.locator("#toast")).to_contain_text("send one image at a time")


def test_grey_values_stay_when_another_slice_is_shown(page, tmp_path):
    ramp = np.arange(64 * 64, dtype=np.int16).reshape(64, 64)
    volume = nib.Nifti1Image(np.stack([ramp * (k + 1) for k in range(4)], 2), np.eye(4))
    (tmp_path / "a.nii").write_bytes(volume.to_bytes())
    page.locator("#file").set_input_files(tmp_path / "a.nii")
    shows(page, "a.nii")
    page.locator("#window").fill("50")
    before = [page.locator(f"#{name}-value").inner_text() for name in ("window", "level")]
    assert before == ["6143", "6143"]  # half of 4095 * 3, the highest value of slice 3 of 4
    page.keyboard.press("[")
    sync_api.expect(page.locator("#slice-value")).to_have_text("2 / 4")
    page.wait_for_timeout(200)
    settle(page)
    assert page.locator("#slice").input_value() == "1"
    assert before == [page.locator(f"#{name}-value").inner_text() for name in ("window", "level")]


def test_keys_work_after_a_file_was_chosen(page, tmp_path, picture):
    (tmp_path / "a.png").write_bytes(picture)
    page.locator("#file").focus()
    page.locator("#file").set_input_files(tmp_path / "a.png")
    shows(page, "a.png")
    assert page.evaluate("document.activeElement.id") == "file"
    page.keyboard.press("m")
    assert page.locator("[data-layer=mean]").get_attribute("aria-pressed") == "true"


def test_hovering_shows_an_answer_until_the_mouse_leaves(page):
    label = "document.querySelector('canvas[role=img]').getAttribute('aria-label')"
    page.locator("[data-mode='1']").hover()
    assert "answer 2" in page.evaluate(label)
    page.locator("h1").hover()
    assert "answer 1" in page.evaluate(label)


def test_the_theme_is_switched_and_kept(page, address):
    theme = "document.documentElement.dataset.theme"
    background = "getComputedStyle(document.querySelector('header')).backgroundColor"
    light = page.evaluate(background)
    assert page.evaluate(theme) == "light"
    page.locator("#theme").click()
    assert page.evaluate(theme) == "dark"
    assert page.evaluate(background) != light
    go(page, address)
    assert page.evaluate(theme) == "dark"


def test_an_example_of_another_task_has_the_cut_of_its_model(page):
    page.locator("#cut").fill("0.95")
    page.locator("#coverage").select_option("0.5")
    page.locator("[data-example=game-a]").click()
    shows(page, "Category A")
    settle(page)
    assert page.locator("#cut-note").inner_text() in ("calibrated", "default")
    assert page.locator("#coverage").input_value() == ""


def test_a_promise_of_coverage_shows_all_that_it_needs(page):
    script = """async (limit) => {
        const { rank } = await import("/page/modes.js");
        const answers = Array.from({ length: 40 }, () => ({ prob: 0.025 }));
        const distance = answers.map((_, i) => answers.map((_, j) => Number(i !== j)));
        const [parent, height] = [answers.map((_, i) => i), answers.map(() => null)];
        const tree = { parent, height, distance };
        return rank({ answers, tree }, { by: "mode", cut: 0.5, limit, max: 12 }).modes.length;
    }"""
    assert page.evaluate(script, None) == 12
    assert page.evaluate(script, 0.51) == 21


def test_every_code_stands_alone(page):
    page.locator("[data-by=code]").click()
    count = int(page.locator("#prior-what").inner_text().split()[2])
    assert page.locator("#modes .mode").count() == count > 12


def test_a_digit_that_did_not_come_is_asked_for_again(page, address):
    page.route("**/api/digits/2/0", lambda route: route.abort())
    go(page, address, "model=guess-exact&digits=1-0,2-1,3-2,4-3")
    page.locator("[aria-label='Place 1: next digit']").click()
    page.wait_for_selector("#toast:not([hidden])")
    page.unroute("**/api/digits/2/0")
    page.locator("[aria-label='Place 1: digit before']").click()
    shows(page, "1 2 3 4")
    page.locator("[aria-label='Place 1: next digit']").click()
    shows(page, "2 2 3 4")


def test_rubbish_is_answered_with_a_sentence_and_the_page_goes_on(page, tmp_path):
    (tmp_path / "rubbish.png").write_bytes(b"rubbish")
    page.locator("#file").set_input_files(tmp_path / "rubbish.png")
    page.wait_for_selector("#toast:not([hidden])")
    assert "rubbish.png is not PNG" in page.locator("#toast").inner_text()
    shows(page, "Spiculated nodule")
    assert page.locator("[data-example=phantom-1]").get_attribute("aria-pressed") == "true"
    page.locator("[data-example=phantom-2]").click()
    shows(page, "Part-solid")


def upload(page, path: Path) -> None:
    page.locator("#file").set_input_files(path)
    shows(page, path.name)
    settle(page)


def test_a_message_goes_when_an_image_is_answered_or_it_is_dismissed(page, tmp_path, picture):
    toast = page.locator("#toast")
    (tmp_path / "rubbish.png").write_bytes(b"rubbish")
    (tmp_path / "a.png").write_bytes(picture)
    for done in (lambda: upload(page, tmp_path / "a.png"), page.locator("#hush").click):
        page.locator("#file").set_input_files(tmp_path / "rubbish.png")
        sync_api.expect(toast).to_be_visible()
        done()
        sync_api.expect(toast).to_be_hidden()


def test_an_upload_stays_to_go_back_to(page, tmp_path, picture):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(picture)
        upload(page, tmp_path / name)
    page.locator("[data-example=phantom-2]").click()
    shows(page, "Part-solid")
    own = page.locator("#uploads .example")
    assert own.all_inner_texts() == ["b.png", "a.png"]
    own.nth(1).click()
    shows(page, "a.png")
    assert own.count() == 2
    assert own.nth(1).get_attribute("aria-pressed") == "true"


def test_without_examples_the_page_waits_for_an_image(page, address, tmp_path, picture):
    page.route("**/api/examples", lambda route: route.fulfill(json=[]))
    go(page, address)
    sync_api.expect(page.locator("#empty")).to_contain_text("drop an image")
    parts = page.locator("[inert]")
    assert parts.count() == 3  # toolbar, sliders, answers
    page.keyboard.press("m")
    (tmp_path / "a.png").write_bytes(picture)
    upload(page, tmp_path / "a.png")
    assert parts.count() == 0
    assert total(page) == pytest.approx(100, abs=1)


def test_a_link_to_an_upload_asks_for_the_file_and_restores_the_view(page, address, tmp_path):
    path = volume_of_noise(tmp_path)
    upload(page, path)
    page.keyboard.press("]")
    sync_api.expect(page.locator("#slice-value")).to_have_text("4 / 5")
    page.wait_for_timeout(200)
    settle(page)
    page.locator("#preset").select_option("lung")
    page.wait_for_timeout(300)
    link = page.evaluate("location.hash").lstrip("#")
    assert "a.nii" not in link
    go(page, address, link)
    assert "drop the same file" in page.locator("#toast").inner_text()
    assert page.locator("#window-value").inner_text() == "255"  # the example is as it always is
    upload(page, path)
    sync_api.expect(page.locator("#slice-value")).to_have_text("4 / 5")
    page.wait_for_timeout(300)
    settle(page)
    assert page.locator("#preset").input_value() == "lung"
    assert page.evaluate("location.hash").lstrip("#") == link


def test_a_link_restores_the_second_image_and_its_model(page, address, tmp_path):
    path = volume_of_noise(tmp_path)
    for example, content in (("phantom-2", None), (None, path)):
        go(page, address, f"example={example}" if example else "")
        if content:
            upload(page, content)
            page.keyboard.press("]")
            page.wait_for_timeout(200)
            settle(page)
        page.locator("#compare").click()
        page.wait_for_selector(".panes.two")
        settle(page)
        page.locator("#other").select_option("guess-probunet")  # of another task
        settle(page)
        page.locator(".strip >> nth=1").locator("button").first.click()
        assert page.locator("#ranking-model").inner_text() == "guess-probunet"
        page.wait_for_timeout(300)
        link = page.evaluate("location.hash").lstrip("#")
        go(page, address, link)
        if content:
            upload(page, content)
            sync_api.expect(page.locator("#slice-value")).to_have_text("4 / 5")
        page.wait_for_timeout(300)
        settle(page)
        shown = page.locator(".pane figcaption b").all_inner_texts()
        assert shown == ["lidc-exact", "guess-probunet"]
        assert page.locator("#ranking-model").inner_text() == "guess-probunet"
        assert page.evaluate("location.hash").lstrip("#") == link


def test_another_slice_leaves_the_second_image_chosen(page, tmp_path):
    upload(page, volume_of_noise(tmp_path))
    page.locator("#compare").click()
    page.wait_for_selector(".panes.two")
    page.locator(".strip >> nth=1").locator("button").first.click()
    name = page.locator("#ranking-model").inner_text()
    page.keyboard.press("]")
    page.wait_for_timeout(200)
    settle(page)
    assert page.locator("#ranking-model").inner_text() == name


def test_what_changes_is_said_to_a_screen_reader(page, tmp_path):
    said = page.locator("#said")
    count = page.locator("#modes .mode").count()
    page.keyboard.press("2")
    second = page.locator("#modes .prob").nth(1).inner_text()
    sync_api.expect(said).to_contain_text(f"answer 2, {second}")
    sync_api.expect(said).to_contain_text(f"{count} listed, rest 0.0 %")
    page.locator("[data-mode='0']").hover()  # a mouse chooses nothing
    sync_api.expect(said).to_contain_text("answer 2")
    page.keyboard.press("d")
    sync_api.expect(said).to_contain_text("disagreement")
    page.locator("#coverage").select_option("0.5")
    assert f"{page.locator('#modes .mode').count()} listed" in said.inner_text()
    page.locator("#opacity").fill("30")
    assert page.locator("#opacity").get_attribute("aria-valuetext") == "30 %"
    assert page.locator("#window").get_attribute("aria-valuetext") == "255"
    assert page.locator("#cut").get_attribute("aria-valuetext").endswith(", calibrated")
    upload(page, volume_of_noise(tmp_path))
    assert page.locator("#slice").get_attribute("aria-valuetext") == "3 of 5"
    assert "slice 3 of 5" in said.inner_text()


def test_the_page_waits_until_the_models_are_loaded(page, address):
    ready, asked = [], []

    def loading(route):
        asked.append(route.request.url)
        if ready:
            route.continue_()
        else:
            error = {"error": "the models are loading; try again"}
            route.fulfill(status=503, headers={"Retry-After": "1"}, json=error)

    page.route("**/api/models", loading)
    page.route("**/api/examples", loading)
    page.goto("about:blank")
    page.goto(address)
    sync_api.expect(page.locator("#empty")).to_have_text("Loading the models…")
    while len(asked) < 4:
        page.wait_for_timeout(100)
    assert page.locator("#toast").is_hidden()
    ready.append(True)
    page.wait_for_selector("body[data-ready]")
    assert total(page) == pytest.approx(100, abs=1)


def test_until_an_image_is_answered_the_one_before_is_shown_as_it_was(page, tmp_path, picture):
    (tmp_path / "a.png").write_bytes(picture)
    held = []
    page.route("**/api/propose", lambda route: held.append(route))
    page.locator("#file").set_input_files(tmp_path / "a.png")
    page.wait_for_selector("body.busy")
    page.keyboard.press("m")  # the page is painted again, and the window has another size
    page.set_viewport_size({"width": 1200, "height": 800})
    page.wait_for_timeout(100)
    shows(page, "Spiculated nodule")
    label = "document.querySelector('canvas[role=img]').getAttribute('aria-label')"
    assert page.evaluate(label) == "Spiculated nodule, lidc-exact: mean of all answers"
    for route in held:
        route.continue_()
    shows(page, "a.png")
    assert page.evaluate(label) == "a.png, lidc-exact: mean of all answers"


def test_a_file_that_is_gone_is_named(page, tmp_path, picture):
    path = tmp_path / "a.png"
    path.write_bytes(picture)
    upload(page, path)
    path.unlink()
    page.locator("#compare").click()
    sync_api.expect(page.locator("#toast")).to_contain_text("a.png was changed or removed")


def test_every_answer_leaves_no_rest(page):
    assert page.locator("#rest-prob").inner_text() == "0.0 %"
    assert "these are all answers" in page.locator("#rest").inner_text()
    page.locator("#coverage").select_option("0.5")
    assert "2 further answers" in page.locator("#rest").inner_text()


def test_every_button_of_a_series_fits_at_1024(browser, address, series):
    context = browser.new_context(viewport={"width": 1024, "height": 768})
    page = context.new_page()
    go(page, address)
    drop(page, series)
    shows(page, "Series of 6 files")
    heights = {b.bounding_box()["height"] for b in page.locator("[data-download]").all()}
    wide = page.evaluate("""[...document.querySelectorAll("button")]
        .filter((b) => b.scrollWidth > b.clientWidth || b.scrollHeight > b.clientHeight)
        .map((b) => b.id || b.innerText)""")
    context.close()
    assert len(heights) == 1
    assert not wide


def test_two_models_side_by_side(page, address):
    go(page, address, "model=guess-exact")
    page.locator("#compare").click()
    page.wait_for_selector(".panes.two")
    assert page.locator(".pane figcaption b").all_inner_texts() == ["guess-exact", "guess-probunet"]
    assert page.locator(".pane").nth(1).locator(".strip button").count() >= 1


def test_digits_can_be_composed(page, address):
    go(page, address, "model=guess-exact&digits=1-0,2-1,3-2,4-3")
    assert page.locator("#modes .mode").count() == 4
    page.locator(".slot button").first.click()
    shows(page, "2 2 3 4")
    assert total(page) == pytest.approx(100, abs=1)


def decoded(mask: dict) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(mask["png"]))))


def test_what_is_downloaded_is_what_the_service_answers(page, address, tmp_path, series):
    def download(button: str) -> bytes:
        with page.expect_download() as found:
            page.locator(f"[data-download={button}]").click()
        found.value.save_as(tmp_path / button)
        return (tmp_path / button).read_bytes()

    assert Image.open(io.BytesIO(download("png"))).size == (1024, 1024)
    page.keyboard.press("m")
    with page.expect_download() as found:
        page.locator("[data-download=png]").click()
    assert found.value.suggested_filename == "phantom-1-mean.png"
    page.keyboard.press("f")  # shows the answer again
    assert page.locator("[data-layer=answer]").get_attribute("aria-pressed") == "true"
    content = json.loads(download("json"))
    example = image_of(address, "phantom-1")
    found = asked(address, example, k=12)
    assert content["rest"] == pytest.approx(found["rest"], abs=1e-5)
    wanted = [decoded(mode["mask"]) for mode in found["modes"]]
    for mode, mask in zip(content["modes"], wanted, strict=True):
        assert np.array_equal(decoded(mode["mask"]), mask)
    path = formats(tmp_path, series)[-1]
    page.locator("#file").set_input_files(path)
    page.wait_for_selector("[data-download=nifti]:not([hidden])")
    with page.expect_download() as found:
        page.locator("[data-download=nifti]").click()
    assert found.value.suggested_filename == "a-slice-3-answers.nii.gz"
    found.value.save_as(tmp_path / "b.nii.gz")
    back = nib.Nifti1Image.from_bytes(gzip.decompress((tmp_path / "b.nii.gz").read_bytes()))
    assert back.shape[:3] == (64, 64, 1)
    modes = asked(address, path.read_bytes(), path.name, k=12)["modes"]
    values = np.asarray(back.dataobj).squeeze()
    values = values[..., None] if len(modes) == 1 else values
    for i, mode in enumerate(modes):
        assert np.array_equal(values[..., i].T > 0, decoded(mode["mask"]) > 127)


@pytest.mark.parametrize("view", ["cut=0.30", "by=code", "coverage=0.5"])
def test_the_page_the_service_and_mue_predict_write_the_same_json(page, address, tmp_path, view):
    """The same words and the same numbers, for one image."""
    go(page, address, f"example=phantom-4&{view}")
    with page.expect_download() as caught:
        page.locator("[data-download=json]").click()
    caught.value.save_as(tmp_path / "a.json")
    downloaded = json.loads((tmp_path / "a.json").read_text())
    content, how = image_of(address, "phantom-4"), dict([view.split("=")])
    many: dict[str, Any] = {} if "coverage" in how else {"k": len(downloaded["modes"])}
    answered = asked(address, content, **how, **many)
    require_same(downloaded, answered)
    assert set(downloaded["modes"][0]) == set(answered["modes"][0])
    if "cut" in how:
        return  # `mue predict` takes the calibrated one
    (tmp_path / "a.png").write_bytes(content)
    options = {"by": how.get("by", "mode"), "coverage": answered["coverage"], **many}
    (predicted,) = mue.predict("lidc-exact", tmp_path / "a.png", **options).report
    require_same(predicted, answered)
    assert set(predicted) <= set(downloaded)
    assert set(predicted["modes"][0]) == set(answered["modes"][0]) - {"mask"}


def require_same(found: dict, other: dict) -> None:
    """Refuse modes with other words or, but for rounding, other numbers."""
    keys = ("model", "by", "cut", "coverage", "rest", "entropy")
    assert [found[k] for k in keys] == [pytest.approx(other[k], abs=3e-4) for k in keys]
    for a, b in zip(found["modes"], other["modes"], strict=True):
        keys = ("rank", "prob", "code", "spread")
        assert [a[k] for k in keys] == [pytest.approx(b[k], abs=3e-4) for k in keys]
        assert a["members"] == [pytest.approx(m, abs=3e-4) for m in b["members"]]


@pytest.mark.parametrize("view", ["layer=none", "layer=none&zoom=4&x=20&y=-10"])
def test_the_picture_that_is_downloaded_is_what_is_in_view(page, address, tmp_path, view):
    go(page, address, f"{view}&example=phantom-1")
    page.wait_for_timeout(300)
    with page.expect_download() as found:
        page.locator("[data-download=png]").click()
    found.value.save_as(tmp_path / "a.png")
    picture = Image.open(tmp_path / "a.png").convert("L")
    script = "document.querySelector('canvas[role=img]').toDataURL().split(',')[1]"
    shown = Image.open(io.BytesIO(base64.b64decode(page.evaluate(script)))).getchannel("R")
    if "zoom" not in view:  # there is nothing beside the image when it fills its place
        side, beside = min(shown.size), (max(shown.size) - min(shown.size)) / 2
        assert shown.width > shown.height
        shown = shown.crop((round(beside), 0, round(beside) + side, side))
    assert picture.width / picture.height == pytest.approx(shown.width / shown.height, abs=0.02)
    small = [np.asarray(image.resize((64, 64)), float) for image in (picture, shown)]
    assert np.abs(small[0] - small[1]).mean() < 2


def test_a_comparison_is_downloaded_side_by_side(page, address, tmp_path):
    go(page, address, "example=phantom-1&compare=guess-exact")
    with page.expect_download() as found:
        page.locator("[data-download=png]").click()
    found.value.save_as(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (2048, 1024)


def test_a_link_restores_the_view(page, address):
    page.keyboard.press("2")
    page.keyboard.press("f")
    page.keyboard.press("r")
    page.keyboard.press("+")
    page.locator("#opacity").fill("30")
    page.locator("#window").fill("50")
    page.wait_for_timeout(300)
    link = page.evaluate("location.hash").lstrip("#")
    assert all(name in link for name in ("zoom=1.4", "window=0.5", "opacity=0.3", "raters"))
    go(page, address, link)
    page.wait_for_timeout(300)
    assert page.evaluate("location.hash").lstrip("#") == link
    assert page.locator("#window-value").inner_text() == "128"
    assert page.locator("#opacity-value").inner_text() == "30 %"
    assert page.locator("[data-mode='1']").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-style=fill]").get_attribute("aria-pressed") == "true"
    assert page.locator("#raters").get_attribute("aria-pressed") == "true"


def test_a_control_is_a_file_and_a_line(page, address):
    """The one of CONTRIBUTING."""
    root = Path(__file__).parents[2]
    (control,) = re.findall(
        r"^```js\n(.*?)^```", (root / "CONTRIBUTING.md").read_text(), re.M | re.S
    )
    table = (root / "src/mue/service/page/controls.js").read_text()
    table = table.replace(
        "import layer", 'import invert from "./controls/invert.js";\nimport layer'
    )
    table = table.replace("  layer,\n", "  layer,\n  invert,\n")
    files = {"controls.js": table, "controls/invert.js": control}

    def fulfil(route):
        name = route.request.url.partition("/page/")[2]
        route.fulfill(body=files[name], content_type="text/javascript")

    for name in files:
        page.route(f"**/page/{name}", fulfil)
    go(page, address)
    page.keyboard.press("i")
    button = page.get_by_role("button", name="Invert")
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("canvas[role=img]").evaluate("c => c.style.filter") == "invert(1)"
    page.wait_for_timeout(300)
    link = page.evaluate("location.hash").lstrip("#")
    assert "inverted=1" in link
    go(page, address, link)
    assert button.get_attribute("aria-pressed") == "true"
    page.keyboard.press("?")
    assert "dark for bright" in page.locator("#keys").inner_text()


def test_a_link_in_an_open_page_and_a_cut_of_0_are_taken(page):
    assert page.locator("#cut-value").inner_text() != "0.00"
    with page.expect_navigation():
        page.evaluate("location.hash = 'example=phantom-2&model=lidc-exact&cut=0.00'")
    page.wait_for_selector("body[data-ready]")
    shows(page, "Part-solid")
    assert page.locator("#cut-value").inner_text() == "0.00"


def test_a_model_without_calibration_says_so_beside_one_that_has_it(page, address):
    def plain(route):
        models = route.fetch().json()
        models[-1] |= {"task": "slices", "name": "guess-probunet", "coverage": [], "limits": []}
        route.fulfill(json=models)

    page.route("**/api/models", plain)
    go(page, address, "compare=guess-probunet&coverage=0.5")
    rests = page.locator(".strip-rest").all_inner_texts()
    assert "not calibrated" not in rests[0]
    assert "not calibrated" in rests[1]


def test_a_token_is_asked_for(browser, served):
    with served(token="a-token-of-enough-characters", rate=0.0) as client:
        page = browser.new_page()
        page.goto(str(client.base_url))
        page.wait_for_selector("#ask[open]")
        page.locator("#token").fill("a-token-of-enough-characters")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        assert "token" not in page.evaluate("location.href")
        page.close()


def test_a_token_that_no_header_can_hold_is_asked_for_again(browser, served):
    with served(token="a-token-of-enough-characters", rate=0.0) as client:
        page = browser.new_page()
        page.goto(str(client.base_url))
        for wrong, said in (("пароль", "ASCII"), ("wrong", "not the one"), ("ключ", "ASCII")):
            page.wait_for_selector("#ask[open]")
            page.locator("#token").fill(wrong)
            page.keyboard.press("Enter")
            sync_api.expect(page.locator("#ask-note")).to_contain_text(said)
        page.evaluate("sessionStorage.setItem('mue-token', 'ключ')")  # of an older page
        page.reload()
        page.wait_for_selector("#ask[open]")
        assert "ASCII" in page.locator("#ask-note").inner_text()
        page.locator("#token").fill(" a-token-of-enough-characters ")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        page.close()


def serious(page) -> list:
    """What axe finds that is serious."""
    axe = importlib.import_module("axe_playwright_python.sync_playwright")  # not skipped

    found = axe.Axe().run(page).response["violations"]
    found = [v for v in found if v["impact"] in ("serious", "critical")]
    return [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_its_width_and_is_accessible(browser, address, width, theme):
    size = {"width": width, "height": WIDTHS[width]}
    context = browser.new_context(viewport=size, color_scheme=theme)
    page = context.new_page()
    go(page, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("MUE_SCREENSHOTS"):
        path = f"{folder}/viewer-{width}-{theme}.jpg"
        page.screenshot(path=path, full_page=True, quality=88)
    found = serious(page)
    context.close()
    assert not found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_opens_on_the_page_is_accessible(browser, address, theme):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(60_000)
    go(page, address, "layer=mean&raters=1")
    page.locator(".open").first.click()
    drop(page, [("rubbish.png", b"rubbish")])
    page.wait_for_selector("#toast:not([hidden])")
    found = serious(page)
    page.locator("#help").click()
    found += serious(page)
    go(page, address, "model=guess-exact&compare=guess-probunet&by=code")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found += serious(page)
    context.close()
    assert not found


def test_answers_are_shown_within_a_second_of_the_drop(page, tmp_path):
    random, took = np.random.default_rng(0), list[float]()
    for i in range(5):  # the first ones warm it up
        path = tmp_path / f"drop-{i}.png"
        y, x = np.mgrid[:128, :128] - 64
        disc = 40 + 120 * (np.hypot(x, y) < 12 + i) + random.normal(0, 6, (128, 128))
        Image.fromarray(disc.clip(0, 255).astype(np.uint8)).save(path)
        began = time.perf_counter()
        page.locator("#file").set_input_files(path)
        shows(page, path.name)
        settle(page)
        took.append(time.perf_counter() - began)
    assert page.locator("#modes .mode").count() >= 1
    others = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # who share the cores
    assert min(took) < others, took
