package rows

import (
	"encoding/hex"
	"hash/fnv"
	"strconv"
)

// The search index of keys is an inverted index: for each term, the keys that have it. The terms of a key are the parts of its name of one to three bytes, in lower case (n-grams), and
// everything else that a list can be filtered by. Every term begins with the account, so the keys
// of one account cost the others nothing.
//
// A search for up to three bytes is one term. A longer search intersects the terms of its trigrams,
// which finds all keys that it selects and perhaps some others, so a search checks the rows of the keys
// that it finds.
const (
	gramTerm    = 'n' // a part of the name of 1 to maxGram bytes
	startTerm   = 'p' // the first 1 to maxStart bytes of the prefix
	nameTerm    = 'e' // a hash of the whole name
	ownerTerm   = 'o' // a hash of the owner
	gatewayTerm = 'g' // a hash of the gateway's identifier
	levelTerm   = 'l'
	phaseTerm   = 's'
)

const (
	maxGram  = 3
	maxStart = 5 // "kg_" and two random characters
	// maxTrigrams is how many trigrams of a query are looked up. More of them hardly
	// exclude further keys.
	maxTrigrams = 16
)

// IndexRows and IndexBytes bound what one transaction of IndexKeys indexes: the number of keys, and the bytes of their
// names, but at least one key. It takes a few milliseconds, during which changes wait.
const (
	IndexRows  = 256
	IndexBytes = 4 << 10
)

// KeyTerms makes the terms of the keys of one account. They consist of ASCII letters and digits.
type KeyTerms struct {
	account string // a hash; the rows of the keys distinguish two accounts with the same hash
}

// NewKeyTerms returns the terms of an account.
func NewKeyTerms(accountID string) KeyTerms { return KeyTerms{hashTerm(accountID, 40)} }

// hashTerm returns a hash of s as hexadecimal digits.
func hashTerm(s string, bits int) string {
	h := fnv.New64a()
	h.Write([]byte(s))
	return strconv.FormatUint(h.Sum64()>>(64-bits), 16)
}

func (t KeyTerms) value(kind byte, value string) string { return t.account + string(kind) + value }

// bytes returns a term whose value is any bytes.
func (t KeyTerms) bytes(kind byte, value string) string {
	return t.value(kind, hex.EncodeToString([]byte(value)))
}

// Name returns the term of keys with a name, and perhaps of some others, as the following do.
func (t KeyTerms) Name(s string) string { return t.value(nameTerm, hashTerm(s, 16)) }

// Owner returns the term of keys with an owner.
func (t KeyTerms) Owner(s string) string { return t.value(ownerTerm, hashTerm(s, 32)) }

// Gateway returns the term of keys of a gateway.
func (t KeyTerms) Gateway(s string) string { return t.value(gatewayTerm, hashTerm(s, 32)) }

// Level returns the term of keys of a level.
func (t KeyTerms) Level(number int) string { return t.value(levelTerm, strconv.Itoa(number)) }

// Phase returns the term of keys in a phase.
func (t KeyTerms) Phase(phase int) string { return t.value(phaseTerm, strconv.Itoa(phase)) }

// Start returns the term of keys whose prefix starts with a text.
func (t KeyTerms) Start(s string) string { return t.bytes(startTerm, s[:min(len(s), maxStart)]) }

// Part returns the terms of all keys whose names contain a part, in any letter case.
func (t KeyTerms) Part(query string) []string {
	grams := trigrams(query)
	for i, gram := range grams {
		grams[i] = t.bytes(gramTerm, gram)
	}
	return grams
}

// IndexedKey is what the terms of a key are made of.
type IndexedKey struct {
	N              int64 // its row
	ID, AccountID  string
	Name, Prefix   string
	Level, Phase   int
	Gateway, Owner string
}

// Terms returns the terms of k, each once.
func (k *IndexedKey) Terms() []string {
	t := NewKeyTerms(k.AccountID)
	name := LowerASCII(k.Name)
	seen := make(map[string]bool, maxGram*len(name))
	var terms []string
	for size := 1; size <= maxGram; size++ {
		for i := range max(0, len(name)-size+1) {
			if gram := name[i : i+size]; !seen[gram] {
				seen[gram] = true
				terms = append(terms, t.bytes(gramTerm, gram))
			}
		}
	}
	for size := 1; size <= min(maxStart, len(k.Prefix)); size++ {
		terms = append(terms, t.Start(k.Prefix[:size]))
	}
	terms = append(terms, t.Name(k.Name), t.Level(k.Level), t.Phase(k.Phase))
	if k.Gateway != "" {
		terms = append(terms, t.Gateway(k.Gateway))
	}
	if k.Owner != "" {
		terms = append(terms, t.Owner(k.Owner))
	}
	return terms
}

// LowerASCII returns s with its ASCII letters in lower case, as searches compare it.
func LowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// trigrams returns the parts of query to look up in the index: query itself if it is short, and
// otherwise at most maxTrigrams of its trigrams, spread over all of it.
func trigrams(query string) []string {
	query = LowerASCII(query)
	if len(query) <= maxGram {
		return []string{query}
	}
	var grams []string
	seen := map[string]bool{}
	last := len(query) - maxGram // where the last trigram begins
	for i := range min(last+1, maxTrigrams) {
		at := i
		if last >= maxTrigrams {
			at = i * last / (maxTrigrams - 1)
		}
		if gram := query[at : at+maxGram]; !seen[gram] {
			seen[gram] = true
			grams = append(grams, gram)
		}
	}
	return grams
}
