from pathlib import Path

import pytest
import torch
from PIL import Image

from mue.data.synthetic.toy import Bars


@pytest.fixture
def image(tmp_path) -> Path:
    x = Bars().case(torch.tensor([0])).x[0, 0]
    path = tmp_path / "bars.png"
    Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return path
