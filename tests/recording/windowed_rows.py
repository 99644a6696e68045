"""Calls of torch as rows: convolutions, poolings, recurrent layers and instance normalisation."""

from __future__ import annotations

# Calls separated by "; ", on x of shape (batch, 2, 3), that must be recorded and equal torch's values.
WINDOWED = {
    "avg_pool1d": "F.avg_pool1d(x, kernel_size=2, stride=1, padding=1, ceil_mode=False, count_include_pad=True)",
    "avg_pool2d": "F.avg_pool2d(x[:, None], kernel_size=2, stride=1, padding=1, ceil_mode=False, "
    "count_include_pad=True, "
    "divisor_override=None)",
    "conv1d": "F.conv1d(x, W[None, :2, :3]); F.conv1d(x, weight=W[None, :2, :2], bias=V[:1], stride=2, padding=1, "
    "dilation=1, groups=1); F.conv1d(x, W[:2, None, :3], padding='same', groups=2)",
    "conv2d": "F.conv2d(x[:, None], weight=W[None, None, :2, :2], bias=V[:1], stride=(1, 2), padding=1, dilation=1, "
    "groups=1)",
    "conv3d": "F.conv3d(x[:, None, None], weight=W[None, None, None, :2, :2], bias=V[:1], stride=1, padding=1, "
    "dilation=1, groups=1)",
    "gru": "torch.gru(x, hx=x[:, 1, :1][None], params=[W[:, :3], W[:, :1], V, V], has_biases=True, "
    "num_layers=1, dropout=0.0, train=False, "
    "bidirectional=False, batch_first=True)[0]",
    "instance_norm": "F.instance_norm(x, running_mean=None, running_var=None, weight=V[:2], bias=V[1:], "
    "use_input_stats=True, momentum=0.1, eps=0.01); torch.instance_norm(x, weight=None, bias=None, "
    "running_mean=V[:2], running_var=V[:2].abs(), use_input_stats=False, momentum=0.1, eps=0.1, cudnn_enabled=False)",
    "lstm": "torch.lstm(x, hx=[x[:, 1, :1][None], x[:, 1, 1:2][None]], params=[W.mT, W.mT[:, :1], W[0], W[1]], "
    "has_biases=True, num_layers=1, dropout=0.0, train=False, "
    "bidirectional=False, batch_first=True)[0]",
    "max_pool1d": "F.max_pool1d(x, kernel_size=2, stride=1, padding=1, dilation=1, ceil_mode=False, "
    "return_indices=False)",
    "max_pool2d": "F.max_pool2d(x[:, None], kernel_size=2, stride=1, padding=1, dilation=1, ceil_mode=False, "
    "return_indices=False)",
    "rnn_relu": "torch.rnn_relu(x, hx=x[:, 1, :2][None], params=[W[:2, :3], W[:2, :2], V[:2], V[1:]], "
    "has_biases=True, num_layers=1, dropout=0.0, train=False, "
    "bidirectional=False, batch_first=True)[0]",
    "rnn_relu_cell": "torch.rnn_relu_cell(x[:, 0], hx=x[:, 1, :2], w_ih=W[:2, :3], w_hh=W[:2, :2], b_ih=V[:2], "
    "b_hh=V[1:])",
    "rnn_tanh": "torch.rnn_tanh(x, hx=x[:, 1, :2][None], params=[W[:2, :3], W[:2, :2], V[:2], V[1:]], "
    "has_biases=True, num_layers=1, dropout=0.0, train=False, "
    "bidirectional=False, batch_first=True)[0]",
    "rnn_tanh_cell": "torch.rnn_tanh_cell(x[:, 0], hx=x[:, 1, :2], w_ih=W[:2, :3], w_hh=W[:2, :2], b_ih=V[:2], "
    "b_hh=V[1:])",
}
