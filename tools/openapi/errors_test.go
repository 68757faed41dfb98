package main

import (
	"os"
	"testing"
)

// Guarantee: docs/errors.md is made from the codes of package fault.
func TestErrorReferenceIsCurrent(t *testing.T) {
	got, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != errorReference() {
		t.Error("docs/errors.md is out of date: run make generate")
	}
}
