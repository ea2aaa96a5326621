import torch
from torch import nn

from mue.models.posterior import Posterior, concatenate
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


def test_each_answer_stands_beside_its_own_input():
    x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[[10.0], [11.0]], [[20.0], [21.0]]])
    assert concatenate(x, y).tolist() == [[1, 10], [1, 11], [2, 20], [2, 21]]


def test_the_encoding_of_an_answer_is_the_same_whichever_answers_are_beside_it():
    torch.manual_seed(0)
    posterior = Posterior(UNetEncoder(2, (4, 6), ()), nn.Linear(6, 3), Usage(5))
    x, y = torch.randn(3, 1, 8, 8), torch.randn(3, 2, 1, 8, 8)
    together = posterior(x, y)
    for i in range(3):
        for j in range(2):
            alone = posterior(x[i : i + 1], y[i : i + 1, j : j + 1])
            torch.testing.assert_close(alone[0, 0], together[i, j])
