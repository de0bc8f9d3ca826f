"""NVIDIA FLARE as the carrier: the only folder that knows it. `pip install 'fairsilo[flare]'`."""
