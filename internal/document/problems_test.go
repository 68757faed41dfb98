package document_test

import (
	"errors"
	"testing"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: problems come in the order of the text, each message once, at most 50 of them with the number of
// the others, which are counted up to a bound; an error of another kind is returned as it is.
func TestProblems(t *testing.T) {
	var p document.Problems
	if p.Add(nil); p.Full() || p.Err() != nil {
		t.Fatalf("got %v, want no error", p.Err())
	}
	at := func(line, column int32) error {
		return document.Position{Line: line, Column: column}.Invalid("a", "bad")
	}
	for _, err := range []error{at(2, 9), at(2, 9), at(2, 10), at(1, 20), fault.Invalid("b", "no place")} {
		p.Add(err)
	}
	want := []fault.Problem{
		{Field: "b", Message: "no place"},
		{Field: "a", Message: "line 1, column 20: bad", Line: 1, Column: 20},
		{Field: "a", Message: "line 2, column 9: bad", Line: 2, Column: 9},
		{Field: "a", Message: "line 2, column 10: bad", Line: 2, Column: 10},
	}
	got := fault.ProblemsOf(p.Err())
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got problem %+v, want %+v", got[i], want[i])
		}
	}
	var first *fault.Error
	if !errors.As(p.Err(), &first) || first.Field != "b" || first.Message != "no place" {
		t.Errorf("got %v, want the first problem as the error", first)
	}
	for i := range int32(100) {
		p.Add(at(i, 1))
	}
	all := p.Err()
	if got, left := len(fault.ProblemsOf(all)), fault.LeftOut(all); p.Full() || got != fault.MaxProblems || left != 104-fault.MaxProblems {
		t.Errorf("got %d problems and %d left out, full %t; want %d and %d, not full", got, left, p.Full(), fault.MaxProblems, 104-fault.MaxProblems)
	}
	var outer document.Problems
	if outer.Add(all); fault.LeftOut(outer.Err()) != 104-fault.MaxProblems {
		t.Errorf("got %d left out of an error with 104 problems that was added, want %d", fault.LeftOut(outer.Err()), 104-fault.MaxProblems)
	}
	for i := range int32(2000) {
		p.Add(at(i, 2))
	}
	if left := fault.LeftOut(p.Err()); !p.Full() || left != fault.MaxCounted-fault.MaxProblems {
		t.Errorf("got %d left out, full %t; want %d, full", left, p.Full(), fault.MaxCounted-fault.MaxProblems)
	}
	broken := errors.New("disk full")
	if p.Add(broken); !errors.Is(p.Err(), broken) {
		t.Errorf("got %v, want %v", p.Err(), broken)
	}
}
