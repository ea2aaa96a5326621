import torch

from mue.nn.mlp import MLPDecoder, MLPEncoder


def test_a_small_network_by_hand():
    encoder, decoder = MLPEncoder(2, [2]), MLPDecoder(2, [], 1, code_width=1)
    encoder.layers[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    encoder.layers[0].bias.data = torch.tensor([0.0, 1.0])
    decoder.layers[1].weight.data = torch.tensor([[1.0, 2.0, -3.0]])
    decoder.layers[1].bias.data = torch.tensor([0.5])
    features = encoder(torch.tensor([[2.0, 3.0], [1.0, -4.0]]))
    # The sums are 5 and 2 - 3 + 1, then -3, which the ReLU cuts off, and 1 + 4 + 1.
    assert features.pooled.tolist() == [[5, 0], [0, 6]]
    # The last layer is linear, so that an answer may be negative: 5 + 2*0 - 3*code + 0.5, ...
    answers = decoder(features, torch.tensor([[[0.0], [2.0]], [[4.0], [5.0]]]))
    assert answers[..., 0].tolist() == [[5.5, -0.5], [0.5, -2.5]]


def test_codes_decoded_together_are_decoded_as_if_alone():
    torch.manual_seed(0)
    encoder, decoder = MLPEncoder(2, [8, 8]), MLPDecoder(8, [16, 16], 2, code_width=3)
    features, codes = encoder(torch.randn(4, 2)), torch.randn(4, 5, 3)
    alone = torch.cat([decoder(features, codes[:, i : i + 1]) for i in range(5)], dim=1)
    torch.testing.assert_close(decoder(features, codes), alone)
