// Package provider fetches the keys of issuers from their providers, which run the servers that sign tokens (identity.md,
// section 2, "Keys").
//
// A Client makes one fetch: discovery if no URL of the keys is known, then the keys. Providers are strangers: a tenant
// may name any address, so connections pass the guard, redirects are not followed, and what is read is bounded.
//
// A Fetcher decides when:
//
//	due in the store ──► claimed by one of the nodes ──┐
//	POST …/refresh ────────────────────────────────────┼─► one flight of an issuer ──► stored, and in force on all nodes
//	a token that needs newer keys (issuer.Renewer) ────┘
//
// The keys that were fetched last stay until others are: a restart, and a provider that is down, change nothing.
package provider
