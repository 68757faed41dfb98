// Package validation holds the requests of gateways against their OpenAPI documents (edge.md, section 6):
//
//	snapshot ─► Documents ─► Document: the compiled checks of a revision, read and compiled with the first request
//	engines ──► Holder: the memory for bodies that are held until they are checked
//	        └─► Reports: what requests do otherwise than their document says
//
// Package validate has the checks themselves.
package validation
