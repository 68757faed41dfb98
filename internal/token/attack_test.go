package token

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Guarantee: what the memory counts for a token is at least what it keeps of it: words of a long claim that give nothing
// do not stay beside the scope that one of them is.
func TestMemoryKeepsNoClaims(t *testing.T) {
	const tokens, filler = 2_000, 5_000
	i := compile(t, nil)
	m := NewMemory()
	held := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := held()
	for n := range tokens {
		claims := fmt.Sprintf(`{"iss":"https://login.example.com/","aud":"api","sub":"u%d","scope":"%s read:orders","exp":%d}`, n, strings.Repeat("x", filler), now.Unix()+600)
		tok, refusal := Parse(encode(`{"alg":"EdDSA","kid":"ed"}`) + "." + encode(claims) + ".AAAA")
		if refusal != nil {
			t.Fatal(refusal)
		}
		p, refusal := i.principal(tok, now)
		if refusal != nil || len(p.Scopes) != 1 {
			t.Fatalf("got %+v and %v", p, refusal)
		}
		m.remember(numbered(n), i, 0, p)
	}
	took := held() - before
	if _, counted := m.Len(); took > uint64(counted)*3/2 {
		t.Errorf("%d tokens take %d bytes, and %d are counted", tokens, took, counted)
	}
	runtime.KeepAlive(m)
}
