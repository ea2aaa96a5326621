"""Modules that compute with our kernels, each in the place of its plain counterpart of `mue.nn`."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.kernels.autograd import Reduced, linear, residual_block, upsample_concat
from mue.kernels.buffers import Buffers, LayerBuffers
from mue.kernels.compiled import Compiled
from mue.kernels.streams import on_stream
from mue.models.learner import VqLearner
from mue.models.modal import Modal, View
from mue.models.posterior import Posterior
from mue.models.probunet import GaussianNet
from mue.nn.backbone import Features
from mue.nn.blocks import ResidualBlock, UpsampleConcat, downsample, pad_to_multiple
from mue.nn.codebook import Codebook
from mue.nn.replace import replace_modules
from mue.nn.standardize import StandardizedLinear
from mue.nn.unet import Join, UNetDecoder, UNetEncoder


def with_kernels(
    learner: nn.Module,
    buffers: Buffers,
    *,
    compiled: bool,
    posterior_stream: torch.cuda.Stream | None,
) -> nn.Module:
    """A copy of a learner that computes by our kernels and shares its parameters.

    With `compiled`, what stands between the kernels is fused by torch.compile.
    """

    def glue(module: nn.Module) -> nn.Module:
        return Compiled(module) if compiled else module

    def side_stream_linear(layer: nn.Linear) -> nn.Linear:
        return SideStreamLinear(layer, buffers.of([layer]))

    def replacement(module: nn.Module) -> nn.Module | None:
        match module:
            case ResidualBlock():
                return FusedResidualBlock(module, buffers)
            case UpsampleConcat():
                return FusedUpsampleConcat()
            case UNetEncoder():
                return FusedUNetEncoder(module, glue(KernelInput(module.stride)))
            case UNetDecoder() if not module.late:
                module.join = cast("Join", glue(KernelJoin(module.join)))
            case Modal() if not isinstance(module.prior, StandardizedLinear):
                module.prior = side_stream_linear(module.prior)
            case Posterior() if not isinstance(module.project, StandardizedLinear):
                module.project = side_stream_linear(module.project)
            case GaussianNet():
                module.read = side_stream_linear(module.read)
            case VqLearner():
                module.network.codebook = cast("Codebook", glue(module.network.codebook))
                if posterior_stream is not None:
                    return TwoStreamVqLearner(module, posterior_stream)
            case _:
                pass
        return None

    return replace_modules(learner, replacement)


def to_kernel_format(x: Tensor) -> Tensor:
    """As the kernels take it: bfloat16, channels_last."""
    return x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


def _fits_int32(x: Tensor, channels: int) -> bool:
    """Whether the kernels, which index by 32 bits, can take images of so many channels."""
    b, _, h, w = x.shape
    return b * h * w * channels < 1 << 31


class FusedResidualBlock(nn.Module):
    """A residual block without normalization, as a few kernels."""

    def __init__(self, block: ResidualBlock, buffers: Buffers | None = None) -> None:
        super().__init__()
        self.block = block
        self._layers = [m for m in [*block.body, block.shortcut] if isinstance(m, nn.Conv2d)]
        self.layer_buffers = None if buffers is None else buffers.of(self._layers)
        self._widest = max(max(m.in_channels, m.out_channels) for m in self._layers)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """The block's output, of the same height and width."""
        return self._run(x)[0] if _fits_int32(x, self._widest) else self.block(x)

    def reduced(self, x: Float[Tensor, "b c h w"], kind: Reduced) -> tuple[Tensor, Tensor]:
        """The block's output, and the same downsampled or averaged over pixels."""
        if not _fits_int32(x, self._widest):
            out = self.block(x)
            return out, downsample(out) if kind == "downsampled" else out.mean(dim=(2, 3))
        out, small = self._run(x, kind)
        return out, small

    def _run(self, x: Tensor, reduced: Reduced | None = None) -> tuple[Tensor, ...]:
        weights = [p for layer in self._layers for p in layer.parameters()]
        buffers = self.layer_buffers or LayerBuffers.rounded(self._layers)
        return residual_block(
            buffers, to_kernel_format(x), *weights, linear=self.block.linear, reduced=reduced
        )


class FusedUpsampleConcat(UpsampleConcat):
    """Upsampling and concatenation as one kernel."""

    def forward(
        self, h: Float[Tensor, "b c h w"], skip: Float[Tensor, "b c2 h2 w2"]
    ) -> Float[Tensor, "b c3 h2 w2"]:
        """Features of twice the size, followed by the channels of the skip connection."""
        if not _fits_int32(skip, h.shape[1] + skip.shape[1]):
            return super().forward(h, skip)
        return upsample_concat(to_kernel_format(h), to_kernel_format(skip))


class KernelInput(nn.Module):
    """Padding, and the cast to what the kernels take."""

    def __init__(self, multiple: int) -> None:
        super().__init__()
        self.multiple = multiple

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
        """Images whose sides are multiples of the encoder's stride."""
        return to_kernel_format(pad_to_multiple(x, self.multiple))


class KernelJoin(nn.Module):
    """Joining features and codes, and the cast to what the kernels take."""

    def __init__(self, join: Join) -> None:
        super().__init__()
        self.join = join

    def forward(
        self, h: Float[Tensor, "b c h w"], codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "bk c2 h w"]:
        """One feature map for each code of each input."""
        return to_kernel_format(self.join(h, codes))


class FusedUNetEncoder(nn.Module):
    """A U-Net encoder whose blocks return their output and the downsampled one from one kernel."""

    def __init__(self, encoder: UNetEncoder, enter: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.enter = enter

    def forward(self, x: Float[Tensor, "b c h w"]) -> Features:
        """The features of a batch of images at every level, and their global average."""
        encoder, h, outs = self.encoder, self.enter(x), list[Tensor]()
        last = len(encoder.blocks) - 1
        for i, block in enumerate(cast("list[FusedResidualBlock]", encoder.blocks)):
            if encoder.drops(i):
                out = F.dropout(block(h), encoder.dropout)
                h = out.mean(dim=(2, 3)) if i == last else downsample(out)
            else:
                out, h = block.reduced(h, "mean" if i == last else "downsampled")
            outs.append(out)
        return Features(tuple(outs[: encoder.depth]), h, tuple(x.shape[-2:]))


class SideStreamLinear(nn.Linear):
    """A linear layer whose weight gradient is computed on a side stream."""

    def __init__(self, layer: nn.Linear, buffers: LayerBuffers) -> None:
        with torch.device("meta"):
            super().__init__(layer.in_features, layer.out_features)
        self.weight, self.bias = layer.weight, layer.bias
        self.layer_buffers = buffers

    def forward(self, input: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:  # noqa: A002
        """Apply it to each input; the argument has the name that PyTorch gives it."""
        if self.layer_buffers.streams is None:
            return super().forward(input)
        return linear(self.layer_buffers, self.layer_buffers.streams, input, self.weight)


class TwoStreamVqLearner(VqLearner):
    """φ encodes the answers on a stream of its own while θ encodes the inputs.

    Autograd runs their backward passes on the same two streams.
    """

    def __init__(self, learner: VqLearner, stream: torch.cuda.Stream) -> None:
        super().__init__(learner.network, learner.posterior)
        self._stream = stream

    def encode(
        self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]
    ) -> tuple[View, Float[Tensor, "b r d"]]:
        """θ of the inputs and φ of the answers."""
        with on_stream(self._stream):
            encoding = self.posterior(x, y)
        view = self.network(x)
        main = torch.cuda.current_stream(x.device)
        main.wait_stream(self._stream)
        encoding.record_stream(main)
        return view, encoding
