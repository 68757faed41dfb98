package limitstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // see scriptSum
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/ratelimit"
)

//go:embed take.lua
var takeScript string

// scriptSum returns the sum by which servers know the script.
func scriptSum() string {
	sum := sha1.Sum([]byte(takeScript)) //nolint:gosec // EVALSHA is defined by SHA-1; nothing is secured by it
	return hex.EncodeToString(sum[:])
}

// States of a bucket in an answer of the script.
const (
	stateDone = iota
	stateBehind
	stateSuperseded
)

// answerFields is the number of figures of a bucket in an answer.
const answerFields = 10

var (
	errSuperseded = errors.New("the limit store has answered a later question already")
	errAnswer     = errors.New("the limit store returned an answer of an unknown form")
)

// ask sends the questions that have no answer yet, in one pipeline. If a server does not know the
// script, it gets the script with the question.
func (s *Store) ask(ctx context.Context, c rueidis.Client, questions []ratelimit.Question) error {
	var open []*ratelimit.Question
	var commands []rueidis.Completed
	for i := range questions {
		if q := &questions[i]; !q.Answered {
			keys, args := s.encode(q)
			open = append(open, q)
			commands = append(commands, c.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
		}
	}
	results := c.DoMulti(ctx, commands...)
	var unknown []*ratelimit.Question
	var errs []error
	for i, r := range results {
		err := r.Error()
		if refused, ok := rueidis.IsRedisErr(err); ok && refused.IsNoScript() {
			unknown = append(unknown, open[i])
			continue
		}
		errs = append(errs, decode(open[i], r))
	}
	if len(unknown) > 0 {
		commands = commands[:0]
		for _, q := range unknown {
			keys, args := s.encode(q)
			commands = append(commands, c.B().Eval().Script(takeScript).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
		}
		for i, r := range c.DoMulti(ctx, commands...) {
			errs = append(errs, decode(unknown[i], r))
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// encode returns the keys and arguments of a question.
func (s *Store) encode(q *ratelimit.Question) (keys, args []string) {
	args = append(make([]string, 0, 2+15*len(q.Takes)), s.cfg.Node, strconv.FormatInt(q.Requests, 10))
	for i := range q.Takes {
		t := &q.Takes[i]
		force := int64(0)
		if t.Force {
			force = 1
		}
		keys = append(keys, s.prefix+t.Name)
		for _, n := range [...]int64{
			t.Capacity, t.Count, t.Per, t.Version, force, t.Number, t.Outstanding, t.Left, t.Ahead, t.Debt, t.DebtNumber, t.Known, t.Birth, t.Amount,
		} {
			args = append(args, strconv.FormatInt(n, 10))
		}
		args = append(args, encodeGifts(t.Gifts))
	}
	return keys, args
}

// encodeGifts returns the numbers of gifts, separated by spaces.
func encodeGifts(gifts []ratelimit.Gift) string {
	var text []byte
	for _, g := range gifts {
		for _, n := range [...]int64{g.Amount, g.Level, g.Part, g.Time} {
			text = append(strconv.AppendInt(text, n, 10), ' ')
		}
	}
	return string(text)
}

// decode sets the answer to q.
func decode(q *ratelimit.Question, r rueidis.RedisResult) error {
	n, err := r.AsIntSlice()
	switch {
	case err != nil:
		return fmt.Errorf("ask the limit store: %w", err)
	case len(n) != 1+answerFields*len(q.Takes):
		return errAnswer
	}
	q.Admitted = n[0]
	for i := range q.Takes {
		t, f := &q.Takes[i], n[1+answerFields*i:]
		if f[0] == stateSuperseded {
			return errSuperseded
		}
		t.Behind, t.Granted, t.Charged, t.Used, t.Part, t.Newer, t.Born = f[0] == stateBehind, f[1], f[2], f[3], f[4], f[5], f[6]
		t.Level, t.LevelPart, t.Time = f[7], f[8], f[9]
	}
	q.Answered = true
	return nil
}
