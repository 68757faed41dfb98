package accesslog

import (
	"encoding/binary"
	"iter"
	"time"
)

const (
	// MaxAttempts is the number of bytes of the longest text of attempts: six of the longest, and as many targets that were not
	// tried as MaxUntried.
	MaxAttempts = 1 + 6*(1+8*binary.MaxVarintLen64+maxTarget+maxResult) + MaxUntried*(1+6*binary.MaxVarintLen64+maxTarget+2*maxResult) + 1 + 2*binary.MaxVarintLen64
	// MaxUntried is how many targets of Untried a text keeps.
	MaxUntried = 4

	maxTarget = 261 // bytes of a host and port
	maxResult = 32

	attemptsForm = 2 // of the texts that AppendAttempt and AppendUntried write
)

// The kinds of what such a text has, each of which begins with it.
const (
	kindAttempt = 1 + iota
	kindTarget  // of Untried
	kindRest    // the rest of Untried
)

// Attempt is one attempt of a request at a target of an upstream that has several (targets.md, section 9).
type Attempt struct {
	Target string // its address: host and port; at most 261 bytes
	Result string // how it ended: the text of a balance.Result; at most 32 bytes
	Reason Reason // why it failed, or NoReason
	Status uint16 // of the response; 0 if there was none
	Took   time.Duration
	// Ejected says when the failure, with those before it, led to an ejection of the target, and EjectedUntil when that
	// ends. Both are in milliseconds since 1970, and 0 if it did not.
	Ejected, EjectedUntil int64
	Failures              int // in a row, that led to the ejection
}

// Untried says which targets of the upstream a request could not be sent to because of their state (targets.md, section 9).
type Untried struct {
	Targets []UntriedTarget // the first; a text keeps MaxUntried
	Count   int             // of all
	// AllUnhealthy is set if no target took part, since all were unhealthy, ejected or drained, so that the request went to any
	// that was not drained.
	AllUnhealthy bool
}

// UntriedTarget is a target that was not tried because of its state.
type UntriedTarget struct {
	Target string // its address: host and port; at most 261 bytes
	State  string // StateUnhealthy and so on; at most 32 bytes
	Reason string // of an unhealthy or ejected one: why; at most 32 bytes
	// Since is when an unhealthy or ejected target became so, and Until when an ejection ends. Both are in milliseconds since 1970,
	// and 0 for other states.
	Since, Until int64
	Failures     int // in a row, that led to an ejection
}

// The states of targets that were not tried.
const (
	StateUnhealthy = "unhealthy"
	StateEjected   = "ejected"
	StateHalfOpen  = "half_open" // its ejection is over, and one request at a time tries it
	StateWaits     = "waiting"   // for its first check
	StateDraining  = "draining"
)

// AppendAttempt appends the text of a, for Texts.AttemptList, which may have up to six of them. Took is cut to whole microseconds,
// and long texts are cut.
func AppendAttempt(b []byte, a *Attempt) []byte {
	b = appendNumbers(b, kindAttempt, int64(a.Reason), int64(a.Status), a.Took.Microseconds(), a.Ejected, max(0, a.EjectedUntil-a.Ejected), int64(a.Failures))
	return appendTexts(b, cut(a.Target, maxTarget), cut(a.Result, maxResult))
}

// AppendUntried appends the text of u, for Texts.AttemptList, which may have one. It appends nothing if u has nothing to say.
func AppendUntried(b []byte, u *Untried) []byte {
	if u.Count == 0 && !u.AllUnhealthy {
		return b
	}
	for i := range u.Targets[:min(len(u.Targets), MaxUntried)] {
		t := &u.Targets[i]
		b = appendNumbers(b, kindTarget, t.Since, max(0, t.Until-t.Since), int64(t.Failures))
		b = appendTexts(b, cut(t.Target, maxTarget), cut(t.State, maxResult), cut(t.Reason, maxResult))
	}
	var all int64
	if u.AllUnhealthy {
		all = 1
	}
	return appendNumbers(b, kindRest, int64(u.Count), all)
}

// appendNumbers appends numbers to a text, which begins with its form.
func appendNumbers(b []byte, numbers ...int64) []byte {
	if len(b) == 0 {
		b = append(b, attemptsForm)
	}
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func appendTexts(b []byte, texts ...string) []byte {
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// Attempts returns the attempts of a text that AppendAttempt wrote, in their order. Their texts share its memory. It ends at the
// first part that is damaged, and returns none if a later version has written the text.
func Attempts(text string) iter.Seq[Attempt] {
	return func(yield func(Attempt) bool) { readAttempts(text, yield, nil) }
}

// UntriedOf returns what AppendUntried wrote to a text. Its texts share the memory of the text. It has nothing to say if the text
// is damaged.
func UntriedOf(text string) (u Untried) {
	readAttempts(text, func(Attempt) bool { return true }, &u)
	if u.Count < len(u.Targets) {
		return Untried{}
	}
	return u
}

// readAttempts calls attempt with each attempt of a text until it returns false, and sets u, which may be nil, to what AppendUntried
// wrote. It ends at the first part that is damaged.
func readAttempts(text string, attempt func(Attempt) bool, u *Untried) {
	if text == "" || text[0] != attemptsForm {
		return
	}
	p := packed{rest: text[1:]}
	for p.rest != "" {
		switch p.number() {
		case kindAttempt:
			a := Attempt{Reason: Reason(p.number()), Status: uint16(p.number()), Took: time.Duration(p.number()) * time.Microsecond, Ejected: p.number()}
			a.EjectedUntil = a.Ejected + p.number()
			a.Failures = int(p.number())
			a.Target, a.Result = p.text(), p.text()
			if p.damaged || !attempt(a) {
				return
			}
		case kindTarget:
			t := UntriedTarget{Since: p.number()}
			t.Until = t.Since + p.number()
			t.Failures = int(p.number())
			t.Target, t.State, t.Reason = p.text(), p.text(), p.text()
			if p.damaged {
				return
			}
			if u != nil {
				u.Targets = append(u.Targets, t)
			}
		case kindRest:
			count, all := int(p.number()), p.number() != 0
			if p.damaged {
				return
			}
			if u != nil {
				u.Count, u.AllUnhealthy = count, all
			}
		default:
			return
		}
	}
}

// CountAttempts returns how many attempts a text has.
func CountAttempts(text string) (n int) {
	for range Attempts(text) {
		n++
	}
	return n
}
