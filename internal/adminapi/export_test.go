package adminapi

import "context"

// TakeCallSlots takes all slots among the calls of an account, and gives them back.
func TakeCallSlots(ctx context.Context, a *API, account string) error {
	var all []func()
	defer func() {
		for _, release := range all {
			release()
		}
	}()
	for range callsPerAccount {
		release, err := a.bounds.calls.Take(ctx, account)
		if err != nil {
			return err
		}
		all = append(all, release)
	}
	return nil
}

// SignInAddresses returns of how many addresses the failed attempts to sign in are remembered.
func SignInAddresses(a *API) int {
	a.signIns.mu.Lock()
	defer a.signIns.mu.Unlock()
	return len(a.signIns.failures)
}
