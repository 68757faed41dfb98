package accesslog

import (
	"encoding/binary"
	"iter"
	"time"
)

const (
	// MaxAttempts is the number of bytes of all attempts of an entry as text: six of the longest.
	MaxAttempts = 1 + 6*(9*binary.MaxVarintLen64+maxTarget+maxResult)

	maxTarget = 261 // bytes of a host and port
	maxResult = 32

	attemptsForm = 1 // of the texts that AppendAttempt writes
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

// AppendAttempt appends the text of a, for Texts.AttemptList, which may have up to six of them. Took is cut to whole microseconds,
// and long texts are cut.
func AppendAttempt(b []byte, a *Attempt) []byte {
	if len(b) == 0 {
		b = append(b, attemptsForm)
	}
	for _, n := range [...]int64{int64(a.Reason), int64(a.Status), a.Took.Microseconds(), a.Ejected, max(0, a.EjectedUntil-a.Ejected), int64(a.Failures)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, s := range [...]string{cut(a.Target, maxTarget), cut(a.Result, maxResult)} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// Attempts returns the attempts of a text that AppendAttempt wrote, in their order. Their texts share its memory. It ends at the
// first that is damaged, and returns none if a later version has written the text.
func Attempts(text string) iter.Seq[Attempt] {
	return func(yield func(Attempt) bool) {
		if text == "" || text[0] != attemptsForm {
			return
		}
		p := packed{rest: text[1:]}
		for p.rest != "" {
			a := Attempt{Reason: Reason(p.number()), Status: uint16(p.number()), Took: time.Duration(p.number()) * time.Microsecond, Ejected: p.number()}
			a.EjectedUntil = a.Ejected + p.number()
			a.Failures = int(p.number())
			a.Target, a.Result = p.text(), p.text()
			if p.damaged || !yield(a) {
				return
			}
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
