// Program broken does not compile.
package main

func main() { undefinedFunction() }
