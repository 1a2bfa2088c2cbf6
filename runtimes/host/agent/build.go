package agent

import "runtime/debug"

// UnknownBuild is the Build of a program that says neither its commit nor its version, such as a test.
const UnknownBuild = "unknown"

// Build returns the commit of this program, with + if its files differ from it, or else its version.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return UnknownBuild
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
		return UnknownBuild
	}
	return build + modified
}
