El jardín despierta en marzo.
Primero podamos los rosales viejos.
Necesitan luz y aire.
Después se cavan los arriates.
El barril está detrás del cobertizo.
Se llena cuando llueve.
En julio está vacío.
Mezcle harina, agua, sal y levadura.
Deje reposar la masa durante dos horas.
Debe duplicar su tamaño.
Hornéela a 230 °C.
Corte las cebollas en trozos pequeños.
Fríalas despacio en aceite.
Añada las lentejas y el caldo.
