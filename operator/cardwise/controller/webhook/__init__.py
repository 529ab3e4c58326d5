"""What the controller does for the webhook: its certificates, and a test that it is reached."""
