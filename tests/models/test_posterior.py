import torch
from torch import nn

from mue.models.posterior import Posterior
from mue.nn.codebook import Usage
from mue.nn.unet import UNetEncoder


def test_projecting_the_pooled_vector_is_the_papers_1x1_convolution_then_pooling():
    torch.manual_seed(0)
    encoder, project = UNetEncoder(2, (4, 6), ()), nn.Linear(6, 3)
    x, y = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 1, 8, 8)
    last = encoder(torch.cat([x, y[:, 0]], dim=1)).levels[-1]
    conv = nn.functional.conv2d(last, project.weight[:, :, None, None], project.bias)
    found = Posterior(encoder, project, Usage(5))(x, y)
    torch.testing.assert_close(found[:, 0], conv.mean(dim=(2, 3)))
