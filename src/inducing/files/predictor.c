//// columns
#include <string.h>

typedef struct {
@fields} @_row;

@tables
static int @_level(const char *text, const char *const *levels, int n, int unseen, double *x) {
  int at = 0;
  while (at < n && strcmp(levels[at], text)) at++;
  for (int j = 0; j < n + (unseen == 2); j++) x[j] = j == at;
  return at == n && unseen == 0;
}

static inline int @_features(const @_row *row, double *x) {
@lines  return 0;
}
//// processes
static void @_processes@b#(const double *given, double *mean, double *variance) {
  double x[@e#], k[@m#], u[@m#], s[@m#], own, here, t, whole = 0.0;
  for (int i = 0; i < @d#; i++) x[i] = given[i];
  for (int i = @d#; i < @e#; i++) {
    const double *h = @_hats@b#[i - @d#], v = given[(int)h[0]];
    const double rising = (v - h[1]) / (h[2] - h[1]);
    x[i] = h[2] == h[3] ? asinh(rising) : fmax(0.0, fmin(rising, (h[3] - v) / (h[3] - h[2])));
  }
  for (int j = 0; j < @m#; j++) k[j] = 0.0;
@terms  for (int c = 0; c < @own#; c++) {
    const double *process = @_process@b#[c], *t = @_t@b#[c];
    double squares = 0.0, sum = process[0];
    for (int i = 0; i < @d#; i++) sum += process[3 + i] * x[i];
    for (int j = 0; j < @m#; j++) sum += @_alpha@b#[c][j] * k[j];
    for (int j = 0; j < @m#; t += ++j) {
      double a = 0.0, b = 0.0;
      int i = 0;
      for (; i < j; i += 2) {
        a += t[i] * k[i];
        b += t[i + 1] * k[i + 1];
      }
      if (i == j) a += t[i] * k[i];
      squares += (a + b) * (a + b);
    }
    mean[@first# + c] = sum;
    variance[@first# + c] = process[1] + (process[2] > 0.0 ? process[2] * whole - squares : squares);
  }
}

//// regression
static inline void @_predict(const double *x, double *y_mean, double *y_std) {
  double mean[@c#], variance[@c#];
  @_processes(x, mean, variance);
  *y_mean = mean[0];
  *y_std = sqrt(fmax(variance[0], 0.0) + @noise);
}
//// two
static inline void @_probabilities(const double *x, double *p) {
  double mean[1], variance[1];
  @_processes(x, mean, variance);
  p[1] = 0.5 * erfc(-mean[0] / sqrt(2.0 * (@probit# + fmax(variance[0], 0.0))));
  p[0] = 1.0 - p[1];
}
//// many
static inline void @_probabilities(const double *x, double *p) {
  double mean[@c#], variance[@c#], odds[@c#], most = -INFINITY, sum = 0.0;
  @_processes(x, mean, variance);
  for (int c = 0; c < @c#; c++) {
    double z = mean[c] / sqrt(2.0 * (@probit# + fmax(variance[c], 0.0)));
    z = fmax(-26.0, fmin(26.0, z));
    odds[c] = log(erfc(-z)) - log(erfc(z));
    most = fmax(most, odds[c]);
  }
  for (int c = 0; c < @c#; c++) sum += p[c] = exp(odds[c] - most);
  for (int c = 0; c < @c#; c++) p[c] /= sum;
}
