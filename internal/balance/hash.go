package balance

// HashValue returns the hash of a value for the policy Hash and for splits. It is the same on every node.
func HashValue(value []byte) uint64 {
	h := uint64(fnvOffset)
	for _, c := range value {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return mix(h)
}

// FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func hashStrings(of ...string) uint64 {
	h := uint64(fnvOffset)
	for _, s := range of {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * fnvPrime
		}
		h = (h ^ 0xff) * fnvPrime
	}
	return mix(h)
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
