package agent

import "runtime/debug"

// unknownBuild is the Build of a program that says neither its commit nor its version, such as a test.
const unknownBuild = "unknown"

// Build returns the commit of this program, with + if its files differ from it, or else its version.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownBuild
	}
	build, modified := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			build = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	if build == "" || build == "(devel)" {
		return unknownBuild
	}
	return build + modified
}
