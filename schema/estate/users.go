package estate

import (
	"fmt"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// claimUsers ensures that one Unix name has one uid and belongs to one person in the
// whole estate. Hosts are shared, so a user who names another user's account could
// submit work as that user and read their files. A claim in force stays; among new ones,
// the platform's has priority, then the first tenant's by name.
func (e *estate) claimUsers() {
	all := make(map[string]*claimed, len(e.trees))
	for _, s := range e.trees {
		all[s.name] = s.verdict.claims
	}
	if agree := e.loader.claims.agree(all); !agree || !e.free {
		e.free, e.users = false, e.contend()
	}
}

// userOf returns the user who claims a Unix account in this result; "": nobody claims it.
func (r *Result) userOf(what string) string {
	if r.users != nil {
		return r.users[what]
	}
	for _, s := range r.trees {
		says, _ := s.verdict.claims.read()
		if is, ok := says[what]; ok {
			return is
		}
	}
	return ""
}

// contender is a document with claims, and its tree.
type contender struct {
	in     *standing
	claims []claimant
}

// contend settles claims that contradict each other.
func (e *estate) contend() map[string]string {
	var docs []contender
	for _, s := range e.trees {
		for _, doc := range s.verdict.claims.docs {
			docs = append(docs, contender{s, claimsOf(doc)})
		}
	}
	claims, owner := e.claimsInForce(docs)
	for _, d := range docs {
		if e.refuseContradicted(d, claims, owner) {
			continue // a document that is out has no claims
		}
		for _, c := range d.claims {
			if !hasEntry(claims, c.what) {
				claims[c.what], owner[c.what] = c.is, c
			}
		}
	}
	return claims
}

// refuseContradicted refuses d for each of its claims that contradicts one of claims, and reports whether it did.
func (e *estate) refuseContradicted(d contender, claims map[string]string, owner map[string]claimant) (refused bool) {
	for _, c := range d.claims {
		if is, ok := claims[c.what]; ok && is != c.is {
			e.refuse(d.in, conflict(c, is, owner[c.what]), owner[c.what].doc.File.Path)
			refused = true
		}
	}
	return refused
}

// claimsInForce returns the claims in force that a document still makes, each with the
// first such document as its owner.
func (e *estate) claimsInForce(docs []contender) (claims map[string]string, owner map[string]claimant) {
	claims, owner = map[string]string{}, map[string]claimant{}
	if e.held == nil {
		return claims, owner
	}
	for _, d := range docs {
		for _, c := range d.claims {
			if _, ok := claims[c.what]; !ok && e.held.userOf(c.what) == c.is {
				claims[c.what], owner[c.what] = c.is, c
			}
		}
	}
	return claims, owner
}

// conflict returns the finding that a claim of c contradicts one of other.
func conflict(c claimant, is string, other claimant) schema.Diagnostic {
	kind, name, _ := strings.Cut(c.what, " ")
	message, rule := "the uid %s is %s's already", load.OneUID
	switch kind {
	case "name":
		message = "the Unix user %s has the uid %s already"
	case "user":
		message, rule = "the Unix user %s is %s's already", load.OneLogin
	}
	if c.doc.Key.Tenant == other.doc.Key.Tenant {
		return clash(end{c.doc, c.field()}, end{other.doc, other.field()}, schema.SeverityError, "conflict.unix-user", func(of end) string {
			if of == (end{c.doc, c.field()}) {
				return fmt.Sprintf(message+" (%s): %s", name, c.is, of.place(), rule)
			}
			return fmt.Sprintf(message+" (%s): %s", name, is, of.place(), rule)
		})
	}
	// The owner and its file belong to another tenant and are not shown.
	f := load.Found(c.doc, c.field(), schema.SeverityError, "conflict.unix-user",
		fmt.Sprintf("the %s is taken by a user of another tenant: %s", what(kind, name), rule))
	f.Other = schema.Place{Position: other.doc.Header.At(other.field()), Path: other.field()}
	return f
}
