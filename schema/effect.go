package schema

// withoutEffect are the kinds that Berth checks and does nothing for yet, and what
// it does not do. It is the one list of them: a kind that gets its effect leaves it.
func withoutEffect() map[Kind]string {
	return map[Kind]string{
		KindSharedRuntime:   "no shared runtime is deployed",
		KindAttachment:      "no project can use a shared runtime",
		KindContribution:    "no node changes hands",
		KindMemberOperation: "no operation is carried out",
		KindQueueMap:        "no queue is mapped",
		KindHookRule:        "nothing is triggered",
	}
}

// LacksEffect says whether documents of kind k have no effect yet, and what Berth
// therefore does not do, in words that follow "so far".
func (k Kind) LacksEffect() (what string, lacks bool) {
	what, lacks = withoutEffect()[k]
	return what, lacks
}
