"""One row per Taylor operation: torch calls that it must enclose, and calls that it must refuse by name.

``x`` is (B, 2, 3): a tensor of points or a model of boxes. ``W`` (3, 4), ``V`` (3,), ``Q`` (2, 3) are constants in the
type of x, ``mask`` (2, 3) and ``square`` (2, 2) bools. Together the calls of a row use every keyword that torch knows.
"""

from __future__ import annotations


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Rows ``name: call; call; ...``, continued on indented lines."""
    rows = text.strip().replace("\n    ", " ").splitlines()
    named = (row.split(": ", 1) for row in rows)
    return {name: tuple(call.strip() for call in calls.split(";")) for name, calls in named}


ROWS = _table("""
abs: abs(x - 0.7); torch.abs(input=x); x.absolute()
add: x + 0.1; torch.add(x, 3, alpha=2); torch.add(x, other=x, alpha=0.1); 16777217 + x; V + x;
    torch.add(Q, x, alpha=3)
addmm: torch.addmm(V[:2], x[:, 0], Q.T); torch.addmm(x[:, 0, :1], x[:, 1], mat2=W, beta=1, alpha=1);
    torch.addmm(input=V[0], mat1=x[:, 0], mat2=W)
amax: x.amax(-1); torch.amax(x, dim=(1, 2), keepdim=True); x.amax((1, 2))
amin: x.amin(1); torch.amin(x, dim=-1, keepdim=True)
acos: torch.acos(x / 2); torch.arccos(input=0.3 - x)
asin: torch.asin(x / 2); torch.arcsin(input=x - 0.7)
atan: torch.atan(x); torch.arctan(3 * x)
avg_pool1d: F.avg_pool1d(x, kernel_size=2, stride=1, padding=1, ceil_mode=False, count_include_pad=True);
    F.avg_pool1d(x, 3)
avg_pool2d: F.avg_pool2d(x[:, None], kernel_size=2, stride=1, padding=1, ceil_mode=False, count_include_pad=True,
    divisor_override=None)[:, 0]; F.avg_pool2d(x[:, None], (2, 3))[:, 0]
conv1d: F.conv1d(x, Q[None]); F.conv1d(x, weight=Q[None, :, :2], bias=V[:1], stride=2, padding=1, dilation=1, groups=1);
    F.conv1d(x, Q[:, None], padding='same', groups=2)
conv2d: F.conv2d(x[:, None], Q[None, None])[:, 0];
    F.conv2d(x[:, None], weight=Q[None, None, :, :2], bias=V[:1], stride=(1, 2), padding=1, dilation=1, groups=1)[:, 0]
conv3d: F.conv3d(x[:, None, None], weight=Q[None, None, None, :, :2], bias=V[:1], stride=1, padding=1, dilation=1,
    groups=1)[:, 0, 0]
hardshrink: F.hardshrink(x - 0.7, lambd=0.2); F.hardshrink(x)
instance_norm: F.instance_norm(x, running_mean=None, running_var=None, weight=V[:2], bias=V[1:], use_input_stats=True,
    momentum=0.1, eps=0.01);
    torch.instance_norm(x, weight=None, bias=None, running_mean=V[:2], running_var=V[:2].abs() + 0.5,
    use_input_stats=False, momentum=0.1, eps=0.1, cudnn_enabled=False)
max_pool1d: F.max_pool1d(x, kernel_size=2, stride=1, padding=1, dilation=1, ceil_mode=False,
    return_indices=False); F.max_pool1d(x, 3)
max_pool2d: F.max_pool2d(x[:, None], kernel_size=2, stride=1, padding=1, dilation=1, ceil_mode=False,
    return_indices=False)[:, 0]; F.max_pool2d(x[:, None], (2, 3))[:, 0]
rnn_relu_cell: torch.rnn_relu_cell(x[:, 0], hx=x[:, 1, :2], w_ih=Q, w_hh=Q[:, :2], b_ih=V[:2], b_hh=V[1:])
rnn_tanh_cell: torch.rnn_tanh_cell(x[:, 0], hx=x[:, 1, :2], w_ih=Q, w_hh=Q[:, :2], b_ih=V[:2], b_hh=V[1:])
softmin: F.softmin(x, dim=-1, _stacklevel=3, dtype=None); F.softmin(3 * x, 1)
gru: torch.gru(x, hx=x[:, 1, :2][None], params=[Q.repeat(3, 1), Q[:, :2].repeat(3, 1), Q.reshape(6), Q.reshape(6)],
    has_biases=True, num_layers=1, dropout=0.0,
    train=False, bidirectional=False, batch_first=True)[0]
lstm: torch.lstm(x, hx=[x[:, 1, :1][None], x[:, 1, 1:2][None]], params=[W.T, W.T[:, :1], W[0], W[1]],
    has_biases=True, num_layers=1, dropout=0.0,
    train=False, bidirectional=False, batch_first=True)[0]
rnn_relu: torch.rnn_relu(x, hx=x[:, 1, :2][None], params=[Q, Q[:, :2], V[:2], V[1:]],
    has_biases=True, num_layers=1, dropout=0.0,
    train=False, bidirectional=False, batch_first=True)[0]
rnn_tanh: torch.rnn_tanh(x, hx=x[:, 1, :2][None], params=[Q, Q[:, :2], V[:2], V[1:]],
    has_biases=True, num_layers=1, dropout=0.0,
    train=False, bidirectional=False, batch_first=True)[0]
batch_norm: F.batch_norm(x, V[:2], V[:2].abs() + 0.1);
    F.batch_norm(x, V[:2], V[:2].abs(), weight=V[1:], bias=V[:2], training=False, momentum=0.1, eps=0.01);
    F.batch_norm(x, running_mean=V[:2], running_var=V[:2].abs() + 0.5);
    torch.batch_norm(x, running_mean=V[:2], running_var=V[:2].abs() + 0.5, weight=None, bias=None, training=False,
    momentum=0.1, eps=0.1, cudnn_enabled=False)
cbrt: A.cbrt(x - 0.7); A.cbrt(9 * x)
celu: F.celu(x - 0.7); F.celu(x - 0.7, alpha=0.3, inplace=False)
glu: F.glu(x[..., :2], dim=-1); F.glu(x, 1)
group_norm: F.group_norm(x, 1); F.group_norm(x, num_groups=2, weight=V[:2], bias=V[1:], eps=0.01);
    torch.group_norm(x, 2, cudnn_enabled=False)
gru_cell: torch.gru_cell(x[:, 0], V[:2].expand(x.shape[0], 2), Q.repeat(3, 1), Q[:, :2].repeat(3, 1));
    torch.gru_cell(x[:, 0], hx=x[:, 1, :2], w_ih=Q.repeat(3, 1), w_hh=Q[:, :2].repeat(3, 1), b_ih=Q.reshape(6),
    b_hh=Q.reshape(6))
hardsigmoid: F.hardsigmoid(9 * x - 6, inplace=False)
hardswish: F.hardswish(9 * x - 6, inplace=False); F.hardswish(3 * x - 3)
log_sigmoid: F.logsigmoid(3 * x - 2); F.logsigmoid(-50 * x)
lstm_cell: torch.lstm_cell(x[:, 0], [x[:, 1, :1], x[:, 1, 1:2]], W.T, W.T[:, :1])[0];
    torch.lstm_cell(x[:, 0], hx=(x[:, 1, :1], x[:, 1, 1:2]), w_ih=W.T, w_hh=W.T[:, :1], b_ih=W[0], b_hh=W[1])[1]
mish: F.mish(x - 0.7); F.mish(9 * x, inplace=False); F.mish(-40 * x)
prelu: F.prelu(x - 0.7, weight=V[:1]); F.prelu(x - 0.7, V[:2])
selu: F.selu(x - 0.7); F.selu(-9 * x, inplace=False)
softshrink: F.softshrink(x - 0.7, lambd=0.2)
softsign: F.softsign(x - 0.7)
tanhshrink: F.tanhshrink(x); F.tanhshrink(x * 1e-9)
threshold: F.threshold(x, threshold=0.7, value=0.1, inplace=False); torch.threshold(x, 0.2, 0.3)
broadcast_to: torch.broadcast_to(x[:, :1], size=(x.shape[0], 4, 3))
cat: torch.cat([x, x * x], -1); torch.cat(tensors=(x, Q[:1].expand(x.shape[0], 1, 3)), dim=1);
    torch.concat([x, x], axis=2)
ceil: torch.ceil(9 * x); x.ceil() * 0.1
chunk: x.chunk(2, -1)[1]; torch.chunk(x, chunks=2, dim=1)[0]
clamp: x.clamp(0.5, 0.9); torch.clamp(x, min=0.1); torch.clip(x, max=0.7); x.clamp(0.9, 0.2);
    torch.clamp(x, min=V, max=x * x + 0.1)
clone: x.clone(memory_format=torch.contiguous_format) * 2
contiguous: x.contiguous(memory_format=torch.contiguous_format) - 1
cos: torch.cos(9 * x)
cosh: torch.cosh(3 * x)
cumsum: torch.cumsum(x, 1); x.cumsum(dim=-1, dtype=None)
detach: x.detach() + 1
dim: x.dim() * x
div: x / 0.3; 1 / x; torch.div(x, other=V, rounding_mode=None); V / (x + 1); torch.true_divide(x, x + 0.5); x / 3;
    (x * 1e-30) / 1e-39; 1e-6 / x; 0 / x
double: x.double(memory_format=torch.preserve_format) * 0.1
dropout: F.dropout(x, p=0.5, training=False, inplace=False); torch.dropout(x, 0.0, train=True)
einsum: torch.einsum('bij,jk->bik', x, W); torch.einsum('bij,bij->b', x, x); torch.einsum('bij->bj', x);
    torch.einsum('...j,j', x, V); torch.einsum('bij,bkj->bik', x, x); torch.einsum('ij,bij->bi', Q, x);
    torch.einsum('bii->bi', x[:, :, :2])
elu: F.elu(x - 0.7); F.elu(x - 0.7, alpha=0.3, inplace=False)
eq: torch.where(torch.eq(x, other=0.7), x, 2 * x); torch.where(x == V, x, 2 * x)
erf: torch.erf(x); torch.special.erf(2 * x)
exp: torch.exp(x); torch.exp(40 * x)
exp2: torch.exp2(x); torch.special.exp2(9 * x)
expand: x[:, :1].expand(-1, 4, -1); x[:, :1].expand(size=(-1, 4, 3), implicit=False); x.expand((2, *x.shape))[0]
exprel: A.exprel(x - 0.7); A.exprel(9 * x)
lgamma: torch.lgamma(x); torch.special.gammaln(input=9 * x)
facets: mesh(x, 1.4 - x); mesh(x[:, :1] / 3, x * x)
spline: table(x, 1.4 - x); table(x[:, :1] / 3, x * x)
sinc: torch.sinc(x - 0.7); torch.special.sinc(input=9 * x)
sinrel: A.sinrel(x - 0.7); A.sinrel(9 * x)
expm1: torch.expm1(x); torch.expm1(x * 1e-9)
flatten: x.flatten(1); torch.flatten(x, start_dim=0, end_dim=1)
repeat: x.repeat(1, 2, 1); x.repeat(repeats=(2, 1, 1, 3))
flip: x.flip(-1); x.flip([1, 2]); torch.flip(x, dims=(1,))
float: x.float(memory_format=torch.preserve_format) * 0.1
floor: torch.floor(9 * x); x.floor() + 0.1
full_like: torch.full_like(x, 0.1) + x;
    torch.full_like(x, fill_value=0.1, dtype=None, device=None, memory_format=torch.preserve_format) * 3 - x;
    torch.full_like(x, 16777217.0) * 3
ge: torch.where(x >= 0.7, x, -x); torch.where(torch.ge(x, other=V), x, x * x)
gelu: F.gelu(x - 0.7); F.gelu(9 * x, approximate='tanh')
getitem: x[:, 1]; x[..., None, 1:]; x[:, [1, 0], None, [0, 2]]; x[:, torch.tensor([1, 0])];
    x[..., torch.tensor([True, False, True])]; x[:, None, 0, ::2]; x[:, [0, 1], :, None][:, :, 0]
gt: torch.where(x > 0.7, x, 0.1); torch.where(torch.gt(x, other=0.2), x, 2 * x); torch.where(0.7 > x, x, 2 * x)
hardtanh: F.hardtanh(x); F.hardtanh(x, min_val=-0.5, max_val=0.6, inplace=False)
hypot: torch.hypot(x, 2 * x - 1); torch.hypot(x, other=V)
index_select: x.index_select(-1, torch.tensor([2, 0])); torch.index_select(x, dim=1, index=torch.tensor([1, 1]))
is_floating_point: x * x.is_floating_point()
layer_norm: F.layer_norm(x, (3,)); F.layer_norm(x, (2, 3), eps=0.1);
    F.layer_norm(x, normalized_shape=(3,), weight=V, bias=V, eps=1e-3); torch.layer_norm(x, (3,), cudnn_enable=False);
    F.layer_norm(x, (3,), eps=0.0)
le: torch.where(torch.le(x, other=0.7), x, x + 1)
leaky_relu: F.leaky_relu(x - 0.7); F.leaky_relu(x - 0.7, negative_slope=0.2, inplace=False);
    F.leaky_relu(x - 0.7, 2.0); F.leaky_relu(x - 0.7, -0.3)
linalg_norm: torch.linalg.norm(x, dim=-1); torch.linalg.norm(x, ord='fro', dim=(-2, -1), keepdim=True, dtype=None);
    torch.linalg.norm(x, ord=1, dim=2); torch.linalg.norm(x, dim=(1, 2))
linalg_vector_norm: torch.linalg.vector_norm(x, dim=(1, 2));
    torch.linalg.vector_norm(x, ord=1, dim=-1, keepdim=True, dtype=None); torch.linalg.vector_norm(x, torch.inf, -1)
linear: F.linear(x, W.T); F.linear(x, weight=Q, bias=V[:2]); F.linear(x, V)
log: torch.log(x); x.log() - 1
log10: torch.log10(x)
log1p: torch.log1p(x); torch.special.log1p(x * 1e-9)
log2: torch.log2(x)
log_softmax: F.log_softmax(x, dim=-1, _stacklevel=3, dtype=None); x.log_softmax(1)
logical_and: torch.where(torch.logical_and(x > 0.3, other=x < 0.9), x, -x); torch.where((x > 0.3) & mask, x, -x)
logical_not: torch.where(torch.logical_not(x > 0.7), x, -x); torch.where(~(x > 0.7), x, -x)
logical_or: torch.where(torch.logical_or(x < 0.3, other=x > 0.9), x, -x); torch.where((x > 0.3) | mask, x, -x)
logsumexp: torch.logsumexp(x, -1); torch.logsumexp(x, dim=[1], keepdim=True)
lt: torch.where(torch.lt(x, other=0.7), x, 1 - x); torch.where(0.2 < x, x, 2 * x)
masked_fill: x.masked_fill(mask, 0.1); torch.masked_fill(x, mask=mask, value=16777217.0);
    torch.softmax(x.masked_fill(mask, -torch.inf), -1)
matmul: x @ W; torch.matmul(x, other=x.mT); Q @ x.mT; x @ V; torch.bmm(x, x.mT); V @ x.mT; torch.mm(x[:, 0], W)
max: x.max(-1).values; torch.max(x, dim=1, keepdim=True)[0]; torch.max(x, other=1 - x); torch.max(Q, x);
    torch.stack([row.max() for row in x])
maximum: torch.maximum(x, 1 - x); torch.maximum(x, other=V)
mean: x.mean(-1); torch.mean(x, dim=(1, 2), keepdim=True, dtype=None)
min: x.min(-1)[0]; torch.min(x, dim=1, keepdim=True).values; torch.min(x, other=1 - x)
minimum: torch.minimum(x, 1 - x); torch.minimum(Q, other=x)
movedim: torch.movedim(x, source=1, destination=2); x.movedim((1, 2), (2, 1)); torch.moveaxis(x, 1, -1)
mul: x * 0.1; torch.mul(x, other=x); V * x; x * x * x; torch.multiply(x, 3)
multi_head_attention_forward: mha(x); mha(x, attn_mask=square, need_weights=False); mha(x, attn_mask=square);
    mha(x, attn_mask=0.1 * Q[:, :2], is_causal=True, need_weights=False);
    mha(x, attn_mask=Q[:, :2], is_causal=True, average_attn_weights=False); mha(x, separate=True)
narrow: x.narrow(-1, 1, 2); torch.narrow(x, dim=1, start=0, length=1)
ne: torch.where(torch.ne(x, other=0.7), x, 2 * x)
neg: -x; torch.negative(x) * 0.1
norm: x.norm(dim=-1); torch.norm(x, p=1, dim=(1, 2), keepdim=True, dtype=None); torch.norm(x, p='fro', dim=(1, 2));
    x.norm(torch.inf, -1); x.norm(2, (1, 2)); torch.norm(x, p=None, dim=1)
numel: x / x[0].numel()
ones_like: torch.ones_like(x, dtype=None, device=None, memory_format=torch.preserve_format) * 0.1 + x
permute: x.permute(0, 2, 1); x.permute((0, 2, 1)); torch.permute(x, dims=(0, -1, 1))
pos: +x
positive: torch.positive(x)
pow: x**2; x**3; x**-1; x**-2; x**0; x**0.5; x**-0.5; x**2.3; 2**x; 1.1**(x * 9); x**x;
    torch.pow(x, exponent=torch.tensor(1.7)); torch.pow(V, exponent=x); x**33; (x * 100)**10.1
prod: x.prod(-1); torch.prod(x, dim=1, keepdim=True, dtype=None); torch.stack([row.prod() for row in x])
quotient: torch.softmax(x, -1) @ W[:, 0]
ravel: torch.stack([torch.ravel(row) for row in x])
reciprocal: torch.reciprocal(x)
relu: torch.relu(x - 0.7); F.relu(0.7 - x, inplace=False)
relu6: F.relu6(9 * x - 2, inplace=False)
reshape: x.reshape(x.shape[0], -1); torch.reshape(x, shape=(x.shape[0], 3, 2)); x.reshape((x.shape[0], 6))
rms_norm: F.rms_norm(x, (3,)); F.rms_norm(x, normalized_shape=(2, 3), weight=Q, eps=0.1); F.rms_norm(x, (3,), eps=0.0);
    F.rms_norm(x.double() * 0.1, (3,))
roll: torch.roll(x, 1, -1); torch.roll(x, shifts=(1, 1), dims=(1, 2)); torch.stack([row.roll(1) for row in x])
rsqrt: torch.rsqrt(x)
scaled_dot_product_attention: F.scaled_dot_product_attention(x, x, x);
    (lambda y: F.scaled_dot_product_attention(y, y, y, is_causal=True))(torch.cat([x[:, :1], x[:, 1:] * 1e30], 1));
    F.scaled_dot_product_attention(x, x, x, is_causal=True);
    F.scaled_dot_product_attention(query=x, key=x, value=2 * x, attn_mask=square, dropout_p=0.0, enable_gqa=False);
    F.scaled_dot_product_attention(x, x, x, attn_mask=Q[:, :2] * 10);
    F.scaled_dot_product_attention(x, x, x, scale=0.0); F.scaled_dot_product_attention(x, x, x, scale=0.3);
    F.scaled_dot_product_attention(9 * x, Q, W.T[:2, :3], scale=-2.0)
select: x.select(1, 1); torch.select(x, dim=-1, index=0)
sigmoid: torch.sigmoid(x); torch.special.expit(-30 * x)
sign: torch.sign(x); torch.sign(x - 0.7)
silu: F.silu(x, inplace=False); F.silu(-90 * x)
sin: torch.sin(9 * x)
sinh: torch.sinh(3 * x)
size: x.size(-1) * x; x.size(dim=1) * x; x.size()[1] * x
softmax: torch.softmax(x, 1); F.softmax(x, dim=-1, _stacklevel=3, dtype=None); torch.special.softmax(50 * x, -1)
softplus: F.softplus(x); F.softplus(x, beta=2.0, threshold=1.0); F.softplus(x, 0.5, 0.3);
    F.softplus(200 * x, threshold=1000.0); F.softplus(x, threshold=-3.0)
sort: x.sort(-1).values; torch.sort(x, dim=1, descending=True, stable=True)[0]
split: x.split(1, -1)[1]; torch.split(x, split_size_or_sections=[1, 2], dim=-1)[1]; x.split(split_size=1, dim=1)[0]
sqrt: torch.sqrt(x)
square: torch.square(x)
squeeze: x[:, :1].squeeze(1); x[:, :1, :1].squeeze(dim=(1, 2))
stack: torch.stack([x, x * x], -1); torch.stack(tensors=(x, V.expand(x.shape)), dim=1)
std: x.std(-1); torch.std(x, dim=(1, 2), unbiased=False, keepdim=True); torch.std(x, dim=-1, correction=0)
sub: x - 0.1; 0.1 - x; torch.sub(x, other=x * x, alpha=0.3); x.sub(1, alpha=2); V - x
sum: x.sum(-1); torch.sum(x, dim=(1, 2), keepdim=True, dtype=None); x.sum(axis=-1);
    torch.stack([row.sum(dim=()) for row in x])
t: x[:, 0].t().mT
tan: torch.tan(x)
tanh: torch.tanh(x); torch.tanh(30 * x)
to: x.to('cpu') + 1; x.to(x.dtype) * 0.1;
    x.to(dtype=x.dtype, device='cpu', non_blocking=False, copy=True, memory_format=torch.preserve_format);
    x.to(V) * 0.1; x.to(tensor=V) + 1
topk: x.topk(2).values; torch.topk(x, k=1, dim=1, largest=False, sorted=True)[0]
transpose: x.transpose(1, 2); torch.transpose(x, dim0=-1, dim1=1); torch.swapaxes(x, 1, 2)
unbind: x.unbind(-1)[1]; torch.unbind(x, dim=1)[0]; next(iter(x))[None]
unflatten: x.unflatten(-1, (3, 1)); x.flatten(1).unflatten(dim=1, sizes=(2, -1))
unsqueeze: x.unsqueeze(-1); torch.unsqueeze(x, dim=1)
var: x.var(-1); torch.var(x, dim=(1, 2), unbiased=False, keepdim=True); torch.var(x, -1, correction=2);
    torch.stack([row.var(False) for row in x]); x.var(-1, correction=0)
view: x.view(x.shape[0], 6); x.view(size=(x.shape[0], 3, 2))
where: torch.where(mask, x, 0.1); torch.where(condition=x > 0.7, input=x, other=x * x); torch.where(x > 0.7, V, x)
zeros_like: torch.zeros_like(x, dtype=None, device=None, memory_format=torch.preserve_format) + x
""")

REFUSED = _table("""
addmm: torch.addmm(V[0], x[:, 0], W, alpha=2); torch.addmm(V[0], x[:, 0], W, beta=0);
    torch.addmm(V[0], x[:, 0], W, out_dtype=torch.float32)
clamp: torch.clamp(x)
cumsum: x.cumsum(-1, dtype=torch.float16); torch.cumsum(x, 1, out=Q)
div: x // 1; x % 0.3; torch.div(x, 3, rounding_mode='floor'); torch.remainder(x, 0.5); divmod(x, 2)
dropout: F.dropout(x, 0.5, training=True); F.dropout(x, 0.5, False, True); torch.dropout(x, 0.5, True)
einsum: torch.einsum('bij,bij,bij->b', x, x, x); torch.einsum('k,k,bik->bi', V, V, x)
elu: F.elu(x, inplace=True)
float: x.half(); x.bfloat16(); x.long(); x.int(); x.bool()
full_like: torch.full_like(x, 0.7, dtype=torch.int64); torch.full_like(x, 0.7, dtype=torch.float16);
    torch.full_like(x, 0.7, requires_grad=True); torch.full_like(x, 0.7, layout=torch.strided);
    torch.full_like(x, 0.7, pin_memory=True); x.new_tensor([1.0]); x.new_full((2,), 0.1)
gelu: F.gelu(x, approximate='other')
getitem: x[x > 0.5]; x[x.max(-1).indices]; x[True]; x[x[0, 0, 0]]
gt: (x > 0) * x; x * (x > 0); (x > 0).double(); (x > 0).sum(); torch.sum(x > 0); (x > 0)[0]; bool(x[0, 0, 0] > 0);
    float(x[0, 0, 0]); int(x[0, 0, 0])
hardtanh: F.hardtanh(x, inplace=True)
layer_norm: F.layer_norm(x, (2,)); F.layer_norm(x, (3,), eps=-1.0)
leaky_relu: F.leaky_relu(x, inplace=True)
linalg_norm: torch.linalg.norm(x, ord=2, dim=(-2, -1)); torch.linalg.norm(x, 1, dim=(1, 2));
    torch.linalg.norm(x, 'nuc', dim=(1, 2)); torch.linalg.matrix_norm(x);
    torch.linalg.norm(x, ord=torch.inf, dim=(1, 2))
linalg_vector_norm: torch.linalg.vector_norm(x, 3, -1); torch.linalg.vector_norm(x, 0, -1);
    torch.linalg.vector_norm(x, -torch.inf, -1); F.normalize(x, dim=-1)
log_softmax: F.log_softmax(x); F.log_softmax(x, -1, dtype=torch.bfloat16)
logsumexp: torch.logsumexp(x, (1, 2))
masked_fill: x.masked_fill(x > 0.5, -torch.inf); x.masked_fill(mask, x)
max: Q[x.max(-1)[1]]; x.max(-1).indices + 1; torch.stack([x.max(-1)[1]]); torch.fmax(x, V); x.argmax(-1);
    x.sort(-1)[1].float()
mean: x.mean(-1, dtype=torch.float16)
mul: x.mul_(2); x.add_(1); operator.iadd(x, 1); operator.imul(x, x); operator.setitem(x, 0, 1);
    operator.setitem(Q, 0, x); Q.add_(x); operator.iadd(Q, x); x * 1j; x * torch.tensor(1j); torch.mul(x, 2, out=Q);
    torch.relu_(x)
multi_head_attention_forward: mha(x, weights=True) + 1; mha(x, attn_mask=square[None]); mha(x, is_causal=True);
    mha(x, key_padding_mask=mask); mha(x, static_k=Q); mha(x, static_v=Q); mha(x, bias_k=Q); mha(x, bias_v=Q);
    mha(x, add_zero_attn=True); mha(x, dropout_p=0.5, training=True)
norm: torch.norm(x, 'nuc', dim=(1, 2)); torch.norm(x, 3); x.norm(dim=-1, dtype=torch.float16)
ones_like: torch.ones_like(x, dtype=torch.bool); torch.ones_like(x, requires_grad=True);
    torch.ones_like(x, layout=torch.strided); torch.ones_like(x, pin_memory=True)
pow: x ** torch.inf; x ** V; x ** 1e9; torch.float_power(x, 2)
prod: x.prod(-1, dtype=torch.int64)
relu: F.relu(x, inplace=True); F.relu(x, True); x.relu_()
relu6: F.relu6(x, inplace=True)
rms_norm: F.rms_norm(x, (2,))
scaled_dot_product_attention: F.scaled_dot_product_attention(x, x, x, attn_mask=square, is_causal=True);
    F.scaled_dot_product_attention(x, x, x, dropout_p=0.5); F.scaled_dot_product_attention(x, x, x, enable_gqa=True);
    F.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT)
sign: torch.heaviside(x, V); torch.round(x); round(x); x.trunc()
silu: F.silu(x, inplace=True)
softmax: F.softmax(x); torch.softmax(x, -1, dtype=torch.float16)
sum: x.sum(-1, dtype=torch.int64); x.sum(-1, dtype=torch.float16); x.sum(-1, where=mask); torch.sum(x, 1, out=Q)
to: x.to(torch.int64); x.to(torch.float16) + 1; x.to(int); torch.exp(x.to(dtype=torch.bfloat16));
    x.to(torch.zeros(1, dtype=torch.int32)); x.type(torch.LongTensor); x.type(torch.float64); x.type_as(mask)
topk: x.topk(2, sorted=False)
view: x.view(torch.int64); x.view(dtype=torch.int64)
where: torch.where(x > 0.5, 0.1, 0.2); torch.where(x > 0.5); torch.where(x, x, x)
zeros_like: torch.zeros_like(x, dtype=torch.int64); torch.zeros_like(x, requires_grad=True);
    torch.zeros_like(x, layout=torch.strided); torch.zeros_like(x, pin_memory=True)
""")
