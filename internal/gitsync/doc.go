// Package gitsync keeps gateways in step with the Git repositories that they follow (contract,
// section 5, "Repository sync").
//
// A sync has two steps. Most end with the first, because there is nothing new:
//
//	due ──► poll: one request for the branch's newest commit
//	          │ another commit than the last
//	          ▼
//	        fetch: read the file of the commit, push it ──► commit status
//
// Each step has slots, shared out between accounts in turn, and a gateway is in one step at a time.
// Half of the slots are kept from accounts whose servers were slow lately, so that servers which
// hang hold up only each other. A sync that is requested while another one runs follows it.
//
// The result of a sync is stored in the transaction of its push, or without a push in a transaction
// of its own, and only if the repository was not changed, paused or removed meanwhile. The times of
// polls that found nothing are stored in batches. Nothing else is kept: after a crash the sync is
// due again.
package gitsync
