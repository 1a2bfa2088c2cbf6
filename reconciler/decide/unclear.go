package decide

import (
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/estate"
)

// runs says whether documents of a kind stand for something that runs, or for
// what that runs on: with one of them, something is destroyed.
func runs(k schema.Kind) bool {
	switch k {
	case schema.KindInstance, schema.KindSharedRuntime, schema.KindAttachment, schema.KindContribution,
		schema.KindNode, schema.KindProject, schema.KindTenant:
		return true
	}
	return false
}

// restrains says whether documents of a kind take something away from others:
// without one of them, more is allowed than was meant.
func restrains(k schema.Kind) bool {
	return k == schema.KindPolicy || k == schema.KindEntitlement || k == schema.KindPause
}

// site is where a path stands, whatever the case of its letters: a directory
// that differs in nothing else is meant to be the same.
type site struct {
	tenant string // "": the platform's
	group  string // the project, the shared runtime, or the platform's directory; "": of none
	name   string // what the file is called after
}

// siteOf says false for a path outside of the estate.
func siteOf(file string) (s site, ok bool) {
	parts := strings.Split(strings.ToLower(file), "/")
	last := len(parts) - 1
	switch {
	case parts[0] == "platform" && last > 0:
		if last > 1 {
			s.group = parts[1]
		}
		if last > 3 {
			s.group += "/" + parts[2]
		}
	case parts[0] == "tenants" && last > 1:
		s.tenant = parts[1]
		if last > 3 && (parts[2] == "projects" || parts[2] == "shared-runtimes") {
			s.group = parts[2] + "/" + parts[3]
		}
	default:
		return s, false
	}
	s.name, _, _ = strings.Cut(parts[last], ".")
	switch s.name { // it is called after its directory
	case "app", "runtime", "tenant", "project":
		s.name = parts[last-1]
	}
	return s, true
}

// maxRead is of how many files of one tenant's it is asked what they are meant
// to be. Nobody has more; of what is beyond, the place alone says it.
const maxRead = 1000

// strays are the files of main that are no valid documents, or wait for one, of
// one tenant or of the platform: by what they may be meant to be, each time the
// first by path. A deletion asks a few of these questions, however many there are.
type strays struct {
	near map[sign]string // by what is alike, and the project
	came map[sign]string // the same of any project, of those that came with this step
	any  map[sign]string // of those that came whenever
}

// sign is something that a stray and a document may have in common.
type sign struct {
	what  string // blob, uid, document, name, scope; or unknown: here, somewhere, unread
	value string
	kind  schema.Kind // "": the stray may be of any
	group string      // in near
}

func (s *strays) add(one sign, group, file string, came bool) {
	put := func(in map[sign]string, at sign) {
		if _, ok := in[at]; !ok {
			in[at] = file
		}
	}
	put(s.any, one)
	if came {
		put(s.came, one)
	}
	one.group = group
	put(s.near, one)
}

// unclear keeps what goes while a file of the same tenant, or of the platform, is
// no valid document and may be meant to be it: a mistyped file name, or a typo in
// a file that was moved, shall neither end what runs nor lift what restrains. What
// people have rights by is not kept: to take rights away is never what destroys.
//
// A file may be meant to be a document if it has its bytes or names its uid; if it
// is called the same, or says that it is of its kind and name; or if it came in
// the same step, stands in the same project, or anywhere if the document has a
// uid, and nobody can tell what it is. One of another project's counts, its uid
// apart, only if it came in the same step:
// what lies around elsewhere holds nobody up. So that what was held once does not
// go a step later, what came before this step counts with what went before it.
//
// What is right in itself and new, and waits for another, may be meant to be what
// has its bytes or its uid only: the one shall not go before the other can come.
//
// A policy or entitlement goes only while all of its kind in its place can be
// read: the limits may have been put there. An invalid one that never was in force
// holds nothing of what is below it: it restrained nobody yet, and nobody waits
// for what somebody else writes badly.
func (g *guard) unclear(told func(schema.File) (estate.Told, error)) {
	asked := map[string]bool{} // tenants
	for _, c := range g.changes {
		if k := g.before.Key(c.Path); c.To == "" && (runs(k.Kind) || restrains(k.Kind)) {
			asked[owner(k)] = true
		}
	}
	if len(asked) == 0 {
		return
	}
	all := g.strays(asked, told)
	for _, c := range g.changes {
		k := g.before.Key(c.Path)
		h := g.before.Desired.Header(k)
		if c.To != "" || h == nil || !runs(k.Kind) && !restrains(k.Kind) {
			continue
		}
		if _, ok := g.mayRelease(c.Path); ok {
			continue
		}
		if to, whole := g.unread(owner(k)); whole {
			g.refusePath(c.Path, CodeUnclear, estate.HeldBlocked, "%s goes while %s comes and cannot be read: it may be meant to be there; mend that first", k, to)
		} else if to := all[owner(k)].meaning(c, h, g.touched(c.Path)); to != "" {
			g.refusePath(c.Path, CodeUnclear, estate.HeldBlocked, "%s goes while %s is there, which does not stand and may be meant to be it: mend that, or take that file away, first (%s)", k, to, g.wrong(to))
		}
	}
}

// wrong is what the reader says of a file that is no valid document, or waits.
func (g *guard) wrong(file string) string {
	i := slices.IndexFunc(g.main.Diagnostics, func(d schema.Diagnostic) bool { return d.File == file && d.Severity == schema.SeverityError })
	switch {
	case i >= 0:
		return g.main.Diagnostics[i].Message
	case g.main.Waits(file):
		return "it needs " + strings.Join(g.main.Needs[file], ", ")
	}
	return "it stands where no document may"
}

// unread is a part of main that cannot be read and is called like a tenant's.
func (g *guard) unread(tenant string) (part string, ok bool) {
	i := slices.IndexFunc(g.main.Unreadable, func(p string) bool {
		return tenant != "" && p != "tenants/"+tenant && (strings.EqualFold(p, "tenants/"+tenant) || strings.EqualFold(p, "tenants"))
	})
	if i < 0 {
		return "", false
	}
	return g.main.Unreadable[i], true
}

// touched says whether somebody is known to have changed a path in this step.
func (g *guard) touched(path string) bool {
	_, touched := g.author(path)
	return touched
}

// strays are those of the tenants asked for.
func (g *guard) strays(asked map[string]bool, told func(schema.File) (estate.Told, error)) map[string]*strays {
	all, read := map[string]*strays{}, map[string]int{}
	for tenant := range asked {
		all[tenant] = &strays{map[sign]string{}, map[sign]string{}, map[sign]string{}}
	}
	for _, c := range g.changes {
		at, ok := siteOf(c.Path)
		if !ok || !asked[at.tenant] || c.To == "" {
			continue
		}
		f, ok := g.main.Invalid(c.Path)
		if h := g.main.Right(c.Path); !ok && h != nil && c.From == "" && g.main.Waits(c.Path) && !g.twin(c.Path) {
			all[at.tenant].alike(c, at, []string{strings.ToLower(h.UID)}, g.touched(c.Path))
		}
		if !ok {
			continue
		}
		var is estate.Told
		if read[at.tenant]++; read[at.tenant] <= maxRead {
			var err error
			if is, err = told(f); err != nil { // it may be anything
				all[at.tenant].add(sign{what: "unread"}, at.group, c.Path, true)
			}
		}
		all[at.tenant].file(c, at, g.main.Key(c.Path).Kind, is, g.touched(c.Path))
	}
	return all
}

// twin says whether a file waits for another that has the same uid. Then that is
// what a document with this uid may be meant to be.
func (g *guard) twin(path string) bool {
	h := g.main.Right(path)
	return slices.ContainsFunc(g.main.Needs[path], func(need string) bool {
		other := g.main.Right(need)
		return h.UID != "" && other != nil && other.UID == h.UID
	})
}

// alike adds a file by what it has of a document itself.
func (s *strays) alike(c schema.PathChange, at site, uids []string, came bool) {
	s.add(sign{what: "blob", value: c.To}, at.group, c.Path, came)
	for _, uid := range uids {
		s.add(sign{what: "uid", value: uid}, at.group, c.Path, came)
	}
}

// file adds a stray. kind is that of the documents that stand in its place, if any.
func (s *strays) file(c schema.PathChange, at site, kind schema.Kind, is estate.Told, came bool) {
	s.alike(c, at, is.UIDs, came)
	add := func(what, value string, kind schema.Kind) { s.add(sign{what, value, kind, ""}, at.group, c.Path, came) }
	of := slices.Clone(is.Kinds)
	if kind != "" && !slices.Contains(of, kind) {
		of = append(of, kind)
	}
	for _, kind := range is.Kinds {
		for _, name := range is.Names {
			add("document", name, kind)
		}
	}
	for _, kind := range of {
		add("scope", "", kind)
	}
	if len(of) == 0 {
		of = append(of, "")
	}
	unknown := c.From == "" && (len(is.Kinds) == 0 || len(is.Names) == 0)
	for _, kind := range of {
		add("name", at.name, kind)
		if unknown {
			add("here", at.group, kind)
			add("somewhere", "", kind)
		}
	}
}

// meaning is the first stray that may be meant to be a document that goes; "":
// none. went says that it goes with this step.
func (s *strays) meaning(c schema.PathChange, h *schema.Header, went bool) string {
	at, _ := siteOf(c.Path)
	far := s.any
	if went {
		far = s.came
	}
	var found []string
	ask := func(in map[sign]string, one sign) {
		if file, ok := in[one]; ok {
			found = append(found, file)
		}
	}
	here := func(one sign) { // of its project or of none, or of the same step
		ask(far, one)
		one.group = at.group
		ask(s.near, one)
		one.group = ""
		ask(s.near, one)
	}
	here(sign{what: "blob", value: c.From})
	if h.UID != "" {
		ask(s.any, sign{what: "uid", value: strings.ToLower(h.UID)})
	}
	here(sign{what: "document", value: strings.ToLower(h.Key.Name), kind: h.Key.Kind})
	for _, kind := range []schema.Kind{"", h.Key.Kind} {
		here(sign{what: "name", value: at.name, kind: kind})
		ask(far, sign{what: "here", value: at.group, kind: kind})
		if h.UID != "" {
			ask(far, sign{what: "somewhere", kind: kind})
		}
	}
	if restrains(h.Key.Kind) {
		ask(s.near, sign{what: "scope", kind: h.Key.Kind, group: at.group})
	}
	ask(s.any, sign{what: "unread"})
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}
