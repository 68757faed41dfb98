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
	held := func() int {
		for range 3 { // pools are empty after the second one
			runtime.GC()
		}
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
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
	_, counted := m.Len()
	t.Logf("%d bytes, of which %d are counted", took, counted)
	if took > 2*counted {
		t.Errorf("%d tokens take %d bytes, and %d are counted", tokens, took, counted)
	}
	runtime.KeepAlive(m)
}
