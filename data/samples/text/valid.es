Las hojas caen pronto este año.
Las rastrillamos en montones.
