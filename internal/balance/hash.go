package balance

// HashValue returns the hash of a value for the policy Hash and for splits. It is the same on every node.
func HashValue(value []byte) uint64 { return mix(fnv(fnvOffset, value)) }

// hashStrings returns a hash of texts, which says where each ends.
func hashStrings(of ...string) uint64 {
	h := uint64(fnvOffset)
	for _, s := range of {
		h = (fnv(h, s) ^ 0xff) * fnvPrime
	}
	return mix(h)
}

// FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fnv goes on with the hash h.
func fnv[T string | []byte](h uint64, text T) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
