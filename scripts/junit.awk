# Summarises nextest's JUnit file: "PASSED FAILED SKIPPED". Alternatively prints why tests were skipped (-v
# reasons=1), the seconds that each took (-v times=1), or the names of those that failed (-v failures=1).
#
# A test that cannot run here prints "not tested: REASON" and returns, which nextest counts as passed.

function attribute(line, name,    rest) {
    rest = line
    if (!sub(".*[ <]" name "=\"", "", rest)) return ""
    sub("\".*", "", rest)
    return plain(rest)
}

function plain(text) {
    gsub("&lt;", "<", text)
    gsub("&gt;", ">", text)
    gsub("&quot;", "\"", text)
    gsub("&apos;", "'", text)
    gsub("&amp;", "\\&", text)
    return text
}

function close_case() {
    if (!open) return
    if (bad) failed++
    else if (why != "") skipped++
    else passed++
    if (reasons && !bad && why != "") print "  " name ": " why
    if (times) printf "%9.2f s  %s\n", seconds, name
    if (failures && bad) print name
    open = 0
}

/<testcase / {
    close_case()
    open = 1
    bad = 0
    why = ""
    name = attribute($0, "classname") " " attribute($0, "name")
    seconds = attribute($0, "time")
}

/<(failure|error)[ >\/]/ { bad = 1 }

/not tested: / && open {
    line = plain($0)
    sub(".*not tested: ", "", line)
    sub("</system-(out|err)>.*", "", line)
    if (index(why, line) == 0) why = (why == "" ? line : why "; " line)
}

END {
    close_case()
    if (!reasons && !times && !failures) print passed + 0, failed + 0, skipped + 0
}
