"""Use the losses and weak labels of wcl in your own training loop."""

import torch

import wcl

torch.manual_seed(0)
encoder = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
g, phi = torch.nn.Linear(32, 16), torch.nn.Linear(32, 16)
modules = torch.nn.ModuleList([encoder, g, phi])
optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-3)
images = torch.randn(256, 64) + 3 * torch.randn(8, 64).repeat(32, 1)  # eight hidden groups

for step in range(50):
    views = [images + 0.5 * torch.randn_like(images) for _ in range(2)]
    h1, h2 = (encoder(view) for view in views)
    v1, v2 = phi(h1), phi(h2)
    loss = wcl.losses.nt_xent(g(h1), g(h2))
    loss = loss + 0.5 * wcl.losses.swap(v1, v2, wcl.weak_labels(v1), wcl.weak_labels(v2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}, {len(wcl.weak_labels(v1).unique())} groups")
