"""The JSON examples of the documents that everything comes from, letter by letter."""

from typing import Final

MESSAGES: Final = """
[
  { "role": "system", "content": "You are a helpful assistant." },
  { "role": "user", "content": "What is the capital of France?" }
]
"""
"""Agent/Request: a simple array of messages."""

INPUT_CONTENT: Final = '{ "type": "input", "input": { ... } }'
"""Agent/Request: the content of a message may be such an object. The dots stand for any members."""

INSTANCES: Final = """
{
  "context": [
    {
      "_instance": "①",
      "type": "state",
      "state": { "text": "This is wonderful!" },
      "schema": {
        "type": "object",
        "properties": {
          "text": { "type": "string" },
          "sentiment": { "type": "string" }
        },
        "required": ["text"]
      }
    },
    { "_instance": "②", "type": "state", "state": { "text": "This is terrible." } }
  ]
}
"""
"""Agent/Instancing: one request with two states."""

PLAN: Final = """
{
  "calls": [
    {
      "_tool": "analyzeSentiment",
      "_instance": "①",
      "text": "†state.text",
      "_outputPath": "sentiment"
    },
    {
      "_tool": "analyzeSentiment",
      "_instance": "②",
      "text": "†state.text",
      "_outputPath": "sentiment"
    }
  ]
}
"""
"""Agent/Instancing: the plan that a model makes for both."""
