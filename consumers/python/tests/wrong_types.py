"""Is checked only: the generated types reject what no message has."""

from messages import DaybookMessages


def wrong(message: DaybookMessages) -> object:
    if message["detail-type"] == "OrderShiped":  # type: ignore[comparison-overlap]
        return None
    if message["detail-type"] != "OrderShipped":
        return None
    total: int = message["detail"]["data"]["total"]
    text: str = message["detail"]["data"]["total"]  # type: ignore[assignment]
    return [total, text, message["detail"]["data"]["seats"]]  # type: ignore[typeddict-item]
