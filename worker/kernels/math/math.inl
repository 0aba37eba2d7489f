// exp, tanh, log and the normal distribution as polynomials (minimax coefficients from the Remez
// algorithm, rounded to float). Written once for every vector type: the including file
// defines Vec, Mask and their functions first (vector/vec_*.inl). math_test.cpp bounds the
// errors.

namespace tilewright::kernels {
namespace {

// exp(x) for x <= 0: zero below -87.33 (where the result is no longer a normal number), NaN for
// NaN. x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts (Cody and Waite). The first part has
// 15 bits, so its product with n is exact. exp(r) = 1 + r + r^2 q(r), relative error of q
// 3.1e-9.
inline Vec exp_nonpositive(Vec x) {
  const Vec n = round_to_integer(x * broadcast(1.44269504f));
  Vec r = mul_add(n, broadcast(-0.693145751953125f), x);
  r = mul_add(n, broadcast(-1.42860677e-6f), r);
  Vec q = broadcast(0.0013814434f);
  q = mul_add(q, r, broadcast(0.0083687967f));
  q = mul_add(q, r, broadcast(0.041668396f));
  q = mul_add(q, r, broadcast(0.1666652f));
  q = mul_add(q, r, broadcast(0.49999994f));
  q = mul_add(q * r, r, r) + broadcast(1.0f);
  return select(less(x, broadcast(-87.336544f)), broadcast(0.0f), scale_by_power(q, n));
}

// 2^x for x <= 1/2, at least 2^-126 (NaN for NaN): 2^n (1 + r q(r)), |r| <= 1/2. The relative error
// of the polynomial is 9.2e-8.
inline Vec exp2(Vec x) {
  const Vec bounded = maximum(broadcast(-126.0f), x);
  const Vec n = round_to_integer(bounded);
  const Vec r = bounded - n;
  Vec q = broadcast(0.0013264727f);
  q = mul_add(q, r, broadcast(0.009671513f));
  q = mul_add(q, r, broadcast(0.055507336f));
  q = mul_add(q, r, broadcast(0.24022242f));
  q = mul_add(q, r, broadcast(0.693147f));
  return scale_by_power(mul_add(q, r, broadcast(1.0f)), n);
}

// 2^x for x <= 1/2 that is then rounded to bf16: 2^n p(x - n), n the largest integer not above x,
// with a minimax polynomial of relative error 2.7e-6. Far below -126 the result is zero.
inline Vec exp2_for_bf16(Vec x) {
  const Vec r = fraction(x);
  Vec p = broadcast(0.0135341678f);
  p = mul_add(p, r, broadcast(0.0520114601f));
  p = mul_add(p, r, broadcast(0.241442755f));
  p = mul_add(p, r, broadcast(0.693003833f));
  p = mul_add(p, r, broadcast(1.00000262f));
  return scale_by_power_down(p, x);
}

// The normal distribution at x: cdf = P(X <= x) and density. The tail P(X > a), a = |x|, is
// exp(-a^2 / 2) t p(t) with t = 1 / (1 + 0.3 a), the form of Hastings' approximations (Abramowitz
// and Stegun, 26.2.17) with a minimax p of degree 9: relative error of p 3.5e-9 for a <= 14; beyond
// 14 exp is zero. This keeps the relative precision of both tails.
struct Normal {
  Vec cdf;
  Vec density;
};
inline Normal normal(Vec x) {
  const Vec a = absolute(x);
  const Vec e = exp_nonpositive(x * x * broadcast(-0.5f));
  const Vec t = broadcast(1.0f) / mul_add(a, broadcast(0.3f), broadcast(1.0f));
  Vec p = broadcast(-0.020612843f);
  p = mul_add(p, t, broadcast(0.112375848f));
  p = mul_add(p, t, broadcast(-0.228067651f));
  p = mul_add(p, t, broadcast(0.19158186f));
  p = mul_add(p, t, broadcast(-0.0792474523f));
  p = mul_add(p, t, broadcast(0.0960578769f));
  p = mul_add(p, t, broadcast(0.0784255639f));
  p = mul_add(p, t, broadcast(0.110227324f));
  p = mul_add(p, t, broadcast(0.119572841f));
  p = mul_add(p, t, broadcast(0.119686633f));
  const Vec tail = e * t * p;
  return {select(less(x, broadcast(0.0f)), tail, broadcast(1.0f) - tail),
          e * broadcast(0.398942280f)};
}

// GELU, x Phi(x), and its derivative Phi(x) + x phi(x) (Hendrycks and Gimpel, 2016, exact form).
inline Vec gelu(Vec x) { return x * normal(x).cdf; }
inline Vec gelu_derivative(Vec x) {
  const Normal n = normal(x);
  return mul_add(x, n.density, n.cdf);
}

// GELU and its derivative for results that are rounded to bf16, whose round-off is 2^-8.
//
// GELU is max(x, 0) - a Phi(-a), a = |x|. log2 Phi(-a) is a polynomial p of degree 5, fitted for
// a <= 5.5, and 2^p is 2^(p rounded down) times a cubic q: relative error 2^-11.6. For a > 5.5 the
// absolute error is below 2^-34.
inline Vec gelu_for_bf16(Vec x) {
  const Vec a = minimum(broadcast(20.0f), absolute(x));  // p(20) = -536, so 2^p is zero
  Vec p = broadcast(-0.000233251205f);
  p = mul_add(p, a, broadcast(0.00486977194f));
  p = mul_add(p, a, broadcast(-0.0445990018f));
  p = mul_add(p, a, broadcast(-0.469681113f));
  p = mul_add(p, a, broadcast(-1.14626079f));
  p = mul_add(p, a, broadcast(-1.0003591f));
  const Vec r = fraction(p);
  Vec q = broadcast(-0.078024512f);
  q = mul_add(q, r, broadcast(-0.226067172f));
  q = mul_add(q, r, broadcast(-0.695833536f));
  q = mul_add(q, r, broadcast(-0.99992522f));
  return mul_add(a, scale_by_power_down(q, p), maximum(broadcast(0.0f), x));
}
// 1/2 plus an odd polynomial of degree 17 for |x| <= 4.25 (absolute error 2^-13), beyond it 0 or
// the value at 4.25 (2^-11.8).
inline Vec gelu_derivative_for_bf16(Vec x) {
  const Vec bounded = maximum(broadcast(-4.25f), minimum(broadcast(4.25f), x));
  const Vec u = bounded * bounded;
  Vec q = broadcast(6.4625551e-10f);
  q = mul_add(q, u, broadcast(-5.98773851e-08f));
  q = mul_add(q, u, broadcast(2.41635132e-06f));
  q = mul_add(q, u, broadcast(-5.61002448e-05f));
  q = mul_add(q, u, broadcast(0.000834824385f));
  q = mul_add(q, u, broadcast(-0.00838255528f));
  q = mul_add(q, u, broadcast(0.0576501199f));
  q = mul_add(q, u, broadcast(-0.263964839f));
  q = mul_add(q, u, broadcast(0.797345761f));
  const Vec y = mul_add(q, bounded, broadcast(0.5f));
  return select(less(x, broadcast(-4.25f)), broadcast(0.0f), y);
}

// Below 0.625 an odd polynomial (relative error 5e-9), above it (1 - e) / (1 + e), e = exp(-2 |x|).
inline Vec tanh(Vec x) {
  const Vec a = absolute(x);
  const Vec u = x * x;
  Vec q = broadcast(-0.0056483163f);
  q = mul_add(q, u, broadcast(0.020589827f));
  q = mul_add(q, u, broadcast(-0.053725127f));
  q = mul_add(q, u, broadcast(0.13331275f));
  q = mul_add(q, u, broadcast(-0.33333275f));
  const Vec small = mul_add(q * u, x, x);
  const Vec e = exp_nonpositive(a * broadcast(-2.0f));
  const Vec large = (broadcast(1.0f) - e) / (broadcast(1.0f) + e);
  const Vec signed_large = select(less(x, broadcast(0.0f)), broadcast(0.0f) - large, large);
  return select(less(a, broadcast(0.625f)), small, signed_large);
}

// Natural logarithm of one finite x > 0, normal: x = 2^n m with m in [sqrt 1/2, sqrt 2), and
// log m = 2 artanh s, s = (m - 1) / (m + 1), by its series (s^2 < 0.0295, so the term s^11 / 11 is
// below the round-off).
inline float log_of(float x) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const auto above = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;
  bits -= static_cast<std::uint32_t>(above) << 23;
  float m = 0;
  __builtin_memcpy(&m, &bits, sizeof m);
  const auto n = static_cast<float>(above);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float u = s * s;
  const float series = u * (0.333333333f + u * (0.2f + u * (0.142857143f + u * (0.111111111f))));
  return n * 0.693145751953125f + (n * 1.42860677e-6f + (2.0f * s + 2.0f * s * series));
}

}  // namespace
}  // namespace tilewright::kernels
