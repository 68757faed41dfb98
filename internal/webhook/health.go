package webhook

import "time"

// DisableAfter is how long an endpoint may give nothing but failures.
const DisableAfter = 5 * 24 * time.Hour

// statusGone is the answer of an endpoint that wants no more.
const statusGone = 410

// What a disabled endpoint says of itself.
const (
	reasonGone    = "the endpoint answered 410 Gone"
	reasonFailing = "every attempt of the last 5 days failed"
)

// Succeeded reports whether the attempt delivered its event: a 2xx answer that
// arrived whole.
func (a *Attempt) Succeeded() bool {
	return a.Error == "" && a.Status >= 200 && a.Status <= 299
}

// Gone reports whether the endpoint answered that it wants no more.
func (a *Attempt) Gone() bool { return a.Error == "" && a.Status == statusGone }

// Observe takes the outcome of one attempt into the endpoint's health and
// reports whether the endpoint changed. It disables one that answered 410 or
// that gave nothing but failures for DisableAfter; nothing else enables or
// disables here, and a disabled one stays so whatever late attempts bring.
func (w *Webhook) Observe(a *Attempt) (changed bool) {
	if a.Succeeded() {
		changed = !w.FailingSince.IsZero()
		w.FailingSince = time.Time{}
		return changed
	}
	if w.FailingSince.IsZero() {
		w.FailingSince, changed = a.StartedAt, true
	}
	if w.State != Active {
		return changed
	}
	switch {
	case a.Gone():
		w.State, w.DisabledReason = Disabled, reasonGone
	case a.StartedAt.Add(a.Duration).Sub(w.FailingSince) >= DisableAfter:
		w.State, w.DisabledReason = Disabled, reasonFailing
	default:
		return changed
	}
	return true
}

// Enable makes the endpoint active with a clean record.
func (w *Webhook) Enable() {
	w.State, w.DisabledReason, w.FailingSince = Active, "", time.Time{}
}
