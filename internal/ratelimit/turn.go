package ratelimit

// partition returns those of all for which first holds, and the others, each in their order. It asks once about each.
func partition[T any](all []T, first func(T) bool) (those, others []T) {
	for _, one := range all {
		if first(one) {
			those = append(those, one)
		} else {
			others = append(others, one)
		}
	}
	return those, others
}

// takeUrgentFirst does what takeInTurn does, first with those that are urgent.
func takeUrgentFirst[T any, A comparable](taken, all []T, most int, urgent func(T) bool, account func(T) A) (_, rest []T) {
	those, others := partition(all, urgent)
	taken, rest = takeInTurn(taken, those, most, account)
	taken, more := takeInTurn(taken, others, most, account)
	return taken, append(rest, more...)
}

// takeInTurn appends to taken, until it has most, the first of all for each account, then the second for each, and so on. It
// returns the rest, in which those of an account keep their order.
func takeInTurn[T any, A comparable](taken, all []T, most int, account func(T) A) (_, rest []T) {
	index := map[A]int{} // of an account
	var accounts [][]T
	for _, one := range all {
		a := account(one)
		i, known := index[a]
		if !known {
			i = len(accounts)
			index[a], accounts = i, append(accounts, nil)
		}
		accounts[i] = append(accounts[i], one)
	}
	for some := true; some && len(taken) < most; {
		some = false
		for i, of := range accounts {
			if len(of) > 0 && len(taken) < most {
				taken, accounts[i], some = append(taken, of[0]), of[1:], true
			}
		}
	}
	for _, of := range accounts {
		rest = append(rest, of...)
	}
	return taken, rest
}
