"""Where memory is kept: the ports that the engine needs, and the stores behind them."""
