package document_test

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/document"
)

// Guarantee: Integer takes every form of a whole number in JSON, and nothing else.
func TestInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"7": 7, "7.0": 7, "7.000": 7, "7e0": 7, "70e-1": 7, "0.7e1": 7, "0.07E+2": 7, "-7.0": -7, "0": 0, "-0": 0, "0.0": 0, "0e999999999999": 0, "0e-9": 0,
		"1e3": 1000, "1.5e1": 15, "9223372036854775807": 9223372036854775807, "-9223372036854775808": -9223372036854775808, "9.223372036854775807e18": 9223372036854775807,
	} {
		if got, ok := document.Integer(text); !ok || got != want {
			t.Errorf("%s: got %d, %t; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "-", "+7", "07", "0x10", "1_000", ".5", "7.", "7.5", "1e-1", "1e", "1e+", "1e+-1", "e1", "NaN", "9223372036854775808", "1e19", "1e999999999999", "1e-999999999999", "7 ", "７",
	} {
		if got, ok := document.Integer(text); ok {
			t.Errorf("%q: got %d, want no whole number", text, got)
		}
	}
}

// Guarantee: Integer agrees with exact arithmetic.
func TestIntegerAgreesWithRationals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := strconv.Itoa(random.IntN(2000)-1000) + "." + strings.Repeat("0", random.IntN(3)) + strconv.Itoa(random.IntN(20)) + "e" + strconv.Itoa(random.IntN(44)-22)
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%s is not a number", text)
		}
		want := exact.IsInt() && exact.Num().IsInt64()
		got, ok := document.Integer(text)
		if ok != want || ok && got != exact.Num().Int64() {
			t.Fatalf("%s: got %d, %t; want %s", text, got, ok, exact)
		}
	}
}
