"""How far the front of a space lands from a design that experts published."""

from dse.questions.rediscovery.answer import Rediscovery, rediscover

__all__ = ["Rediscovery", "rediscover"]
