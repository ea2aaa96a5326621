"""The models, and what each can be asked."""

from fastapi import APIRouter

from mue.inference.masks import class_names
from mue.inference.predictor import Predictor
from mue.service import schema
from mue.service.answers import is_label_map
from mue.service.service import Served

router = APIRouter(tags=["answers"])


@router.get("/api/models")
async def models(service: Served) -> list[schema.Model]:
    """The models, and what each can be asked."""
    return [_model(name, p) for name, p in service.predictors.items()]


def _model(name: str, predictor: Predictor) -> schema.Model:
    config = predictor.config
    return schema.Model(
        name=name,
        method=config.method,
        task=config.data.name,
        channels=config.model.c_in,
        classes=list(class_names(config)),
        answers="labels" if is_label_map(config) else "probability",
        codes=predictor.codes,
        samples=predictor.is_sampler,
        cut=predictor.cut,
        max_cut=1.0 if predictor.cut < 1 else 4 * predictor.cut,
        coverage=list(config.modes.coverage),
        limits=list(config.modes.limits),
    )
