"""Operations: shows the health, the logs and the metrics of a shared server to its operators."""
