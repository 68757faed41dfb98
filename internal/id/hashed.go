package id

import "crypto/sha256"

// Hashed returns an identifier for what has names and no record: a hash of the names, whose text begins with 7zz behind the
// kind. No identifier of New or NewAt does, which begin with a time.
func Hashed(names ...string) (u [16]byte) {
	h := sha256.New()
	for _, name := range names {
		sum := sha256.Sum256([]byte(name))
		h.Write(sum[:])
	}
	copy(u[:], h.Sum(nil))
	u[0], u[1] = 0xff, 0xff
	return u
}
