package webhook

import "time"

// DisableAfter is how long every attempt must have failed before the endpoint is disabled.
const DisableAfter = 5 * 24 * time.Hour

// statusGone is the status with which an endpoint asks for no further deliveries.
const statusGone = 410

// The values of Webhook.DisabledReason.
const (
	reasonGone    = "the endpoint responded with 410 Gone"
	reasonFailing = "every attempt of the last 5 days failed"
)

// Succeeded reports whether the attempt delivered its event: the response was complete
// and its status 2xx.
func (a *Attempt) Succeeded() bool {
	return a.Error == "" && a.Status >= 200 && a.Status <= 299
}

// Ended returns when the attempt ended.
func (a *Attempt) Ended() time.Time { return a.StartedAt.Add(a.Duration) }

// Gone reports whether the endpoint responded with 410 Gone.
func (a *Attempt) Gone() bool { return a.Error == "" && a.Status == statusGone }

// Observe updates the endpoint's health with the result of one attempt and reports
// whether the endpoint changed. It disables an endpoint that responded with 410, or whose
// attempts have all failed for DisableAfter. A success ends a pause. It never enables an endpoint: results that come in
// after the endpoint was disabled do not change its state.
func (w *Webhook) Observe(a *Attempt) (changed bool) {
	if a.Succeeded() {
		changed = !w.FailingSince.IsZero()
		w.FailingSince = time.Time{}
		if ended := a.Ended(); w.PausedUntil.After(ended) {
			w.PausedUntil, changed = ended, true
		}
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
	case a.Ended().Sub(w.FailingSince) >= DisableAfter:
		w.State, w.DisabledReason = Disabled, reasonFailing
	default:
		return changed
	}
	return true
}

// Pause notes that deliveries to the endpoint that have had no attempt are postponed until the given time,
// unless they are postponed for longer already, and reports whether the endpoint changed.
func (w *Webhook) Pause(until time.Time) (changed bool) {
	if !until.After(w.PausedUntil) {
		return false
	}
	w.PausedUntil = until
	return true
}

// PausedAt returns until when the endpoint is paused, or the zero time if it is not paused at now.
func (w *Webhook) PausedAt(now time.Time) (until time.Time) {
	if w.State == Active && w.PausedUntil.After(now) {
		return w.PausedUntil
	}
	return time.Time{}
}

// NotSent returns the error of a delivery that failed without an attempt, because its endpoint
// is disabled or, if w is nil, was deleted.
func (w *Webhook) NotSent() string {
	switch {
	case w == nil:
		return "not sent: the endpoint was deleted"
	case w.DisabledReason == "":
		return "not sent: the endpoint is disabled"
	default:
		return "not sent: the endpoint is disabled: " + w.DisabledReason
	}
}

// Enable makes the endpoint active and forgets its failures.
func (w *Webhook) Enable() {
	w.State, w.DisabledReason, w.FailingSince = Active, "", time.Time{}
}
